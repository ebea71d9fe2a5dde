"""Store the result of expanding a declaration of many tables: pipelines, errors, and new and gone tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.config.database.patterns import PatternMatch
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Expansion:
    """Pipelines of the tables that a declaration selects, and the tables that have none.

    :param pipelines: pipeline of each table that can be replicated, by ``schema.table``, in the order of the catalog
    :param names: name of the pipeline of each selected table that is not ignored, by ``schema.table``; tables with an
        error are included
    :param errors: errors that do not affect other tables. By ``schema.table``: of a selected table that cannot be
        replicated, or of a key of the section ``tables`` whose table neither exists nor was replicated before. By
        pattern: of a pattern of ``include`` that matches no table
    :param matches: tables that each pattern matches, in the order of the declaration
    :param new: tables among ``names`` that appeared after the first run
    :param ignored: tables that appeared after the first run and are left out because of ``new_tables: ignore``
    :param gone: tables that were replicated and no longer exist in the source, as ``schema.table``; or the name of the
        table's pipeline, if that name was shortened because of its length, so that it does not tell the table
    :param halted: error because of which nothing may be replicated: of ``new_tables: halt`` or ``gone_tables: halt``,
        or that no table is selected; None if there is none
    """

    pipelines: Mapping[str, Pipeline]
    names: Mapping[str, str]
    errors: Mapping[str, ConfigError]
    matches: tuple[PatternMatch, ...]
    new: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    halted: ConfigError | None = None

    def refuse_halted(self) -> None:
        """Raise the error because of which nothing may be replicated, if there is one.

        :raises ConfigError: :attr:`halted`
        """
        if self.halted is not None:
            raise self.halted
