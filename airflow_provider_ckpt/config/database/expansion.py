"""The result of expanding a declaration of many tables into one pipeline for each table that it selects.

The result has the pipelines, the errors of tables that cannot be replicated, and the tables that are new or gone since
the first run.
"""

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
    :param errors: errors that do not affect other tables. The key is the ``schema.table`` of a selected table that
        cannot be replicated, or of a table in the section ``tables`` that neither exists nor was replicated before; or
        it is a pattern of ``include`` that matches no table
    :param matches: tables that each pattern matches, in the order of the declaration
    :param new: tables among ``names`` that appeared after the first run
    :param ignored: tables that appeared after the first run and are left out because of ``new_tables: ignore``
    :param gone: tables that were replicated and no longer exist in the source, as ``schema.table``. If the name of the
        table's pipeline was cut because of its length, the table is not known, and that name is given instead
    :param halted: error because of which no table may be replicated: a new table with ``new_tables: halt``, a gone
        table with ``gone_tables: halt``, or no selected table at all; None if there is no such error
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
        """Raise :attr:`halted`, the error because of which no table may be replicated, if there is one.

        :raises ConfigError: :attr:`halted`
        """
        if self.halted is not None:
            raise self.halted
