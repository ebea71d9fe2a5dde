"""Model of a declaration of many tables: the tables of a database to replicate, and the keys of their pipelines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from airflow_provider_ckpt.config.characters import for_message, non_ascii_clause
from airflow_provider_ckpt.config.fields import Section, WholeNumber
from airflow_provider_ckpt.config.schedule import DagSection
from airflow_provider_ckpt.config.unknown_keys import KeyPath

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def _name(given: str) -> str:
    if not _NAME.fullmatch(given):
        raise ValueError(
            "must be letters, digits, '_' and '-', not begin with '-', and be 64 long at most: schema and table follow "
            f"it in the names of pipelines{non_ascii_clause(for_message(given))}"
        )
    return given


def _patterns(given: tuple[str, ...]) -> tuple[str, ...]:
    for at, pattern in enumerate(given):
        if not pattern.strip():
            raise ValueError("holds an empty pattern; leave it out")
        if pattern in given[:at]:
            raise ValueError(f"names {for_message(pattern)} twice; leave one out")
    return given


def _not_empty(given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        raise ValueError('is empty; name tables, such as ["public.*"]')
    return given


def _dag(given: DagSection | None) -> DagSection | None:
    unused = [] if given is None else [key for key in _KEYS_OF_ONE_PIPELINE if key in given.model_fields_set]
    if unused:
        raise ValueError(f"{unused[0]} has no effect for many tables; leave it out")
    return given


_KEYS_OF_ONE_PIPELINE = ("work", "shape", "deferrable")
"""Keys of the section ``dag`` that only the DAG of a single pipeline has."""


Patterns = Annotated[tuple[str, ...], AfterValidator(_patterns)]
"""Patterns of shell style (``*``, ``?``, ``[…]``) that match ``schema.table``; they are case-sensitive."""


class DatabaseSettings(Section):
    """Tables of a source database that are replicated, and distribution of their runs over tasks.

    :param include: patterns of the tables that are replicated
    :param exclude: patterns of tables that are left out although they are included
    :param new_tables: reaction to a table that appears after the first run: ``add`` replicates it, ``ignore`` leaves it
        out, ``halt`` fails the run before anything is replicated
    :param gone_tables: reaction to a replicated table that no longer exists: ``keep`` continues with the other tables,
        ``halt`` fails the run before anything is replicated
    :param groups: maximum number of tasks over which the tables with new records are distributed
    :param lanes_per_table: maximum number of lanes that one table occupies while others wait
    """

    include: Annotated[Patterns, AfterValidator(_not_empty)]
    exclude: Patterns = ()
    new_tables: Literal["add", "ignore", "halt"] = "add"
    gone_tables: Literal["keep", "halt"] = "keep"
    groups: WholeNumber = Field(default=8, ge=1, le=500)
    lanes_per_table: WholeNumber = Field(default=2, ge=1, le=1_000)


class Database(Section):
    """Declaration of many tables of one database, each of which is replicated by a pipeline of its own.

    :param name: name of the declaration; the pipeline of a table is called ``<name>.<schema>.<table>``
    :param settings: the tables, and the distribution of their runs over tasks; the YAML key is ``database``
    :param defaults: keys of a pipeline that all tables share
    :param tables: keys of a pipeline that replace the defaults, by ``schema.table``
    :param dag: the DAG that a DAG factory creates from the file; None for no DAG
    """

    name: Annotated[str, AfterValidator(_name)]
    settings: DatabaseSettings = Field(alias="database")
    defaults: dict[str, Any]
    tables: dict[str, dict[str, Any]] = Field(default_factory=dict)
    dag: Annotated[DagSection | None, AfterValidator(_dag)] = None

    _file: str = PrivateAttr(default="database")
    _line: Callable[[KeyPath], int] | None = PrivateAttr(default=None)

    def in_file(self, file: str, line: Callable[[KeyPath], int] | None) -> Database:
        """Set the name of the declaration's file, for errors of its tables, and return the declaration itself.

        :param file: name of the file or data
        :param line: function that returns the line of a key in the file; None if there is no file
        """
        self._file, self._line = file, line
        return self

    @property
    def file(self) -> str:
        """Name of the file or data that contains the declaration, for error messages."""
        return self._file

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a key in the file, from 1; None if there is no file."""
        return None if self._line is None else self._line(path)

    @property
    def source_type(self) -> str:
        """Type of the source, such as ``postgres``."""
        return str(self.defaults["source"]["type"])

    @property
    def connection(self) -> str | None:
        """Airflow connection id of the source database; None if it needs none."""
        given = self.defaults["source"].get("connection")
        return None if given is None else str(given)
