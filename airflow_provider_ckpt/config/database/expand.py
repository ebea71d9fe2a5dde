"""Expand a declaration of many tables to one pipeline per table, from the declaration and the catalog alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.config.database.catalog import Catalog, CatalogTable
from airflow_provider_ckpt.config.database.expansion import Expansion
from airflow_provider_ckpt.config.database.merge import place_in_file
from airflow_provider_ckpt.config.database.model import Database
from airflow_provider_ckpt.config.database.patterns import PatternMatch, matcher, matches, nearest_clause
from airflow_provider_ckpt.config.database.pipeline_names import pipeline_name, table_of_pipeline
from airflow_provider_ckpt.config.database.table_pipeline import TableError, table_pipeline
from airflow_provider_ckpt.config.load import error_message
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Problem
from airflow_provider_ckpt.config.unknown_keys import KeyPath
from airflow_provider_ckpt.core.errors import ConfigError

_MOST_NAMES = 5
"""Maximum number of tables that an error names; of further tables, the error only states the number."""


def expand(database: Database, catalog: Catalog, known: Collection[str] = ()) -> Expansion:
    """Return the pipelines of the tables that a declaration selects, and the errors of tables without a pipeline.

    :param database: the declaration
    :param catalog: all tables of the source database
    :param known: names of the declaration's pipelines that the ledger has; empty before the first run. A selected table
        is *new* if the ledger does not have its pipeline. A table is *gone* if the ledger has its pipeline, but the
        catalog does not have the table
    """
    return _Expander(database, catalog, known).expansion()


class _Expander:
    def __init__(self, database: Database, catalog: Catalog, known: Collection[str]) -> None:
        self._database = database
        self._catalog = sorted(catalog, key=lambda table: (table.schema, table.name))
        self._known = {name for name in known if name.startswith(f"{database.name}.")}
        self._errors: dict[str, ConfigError] = {}
        self._included, self._excluded = matcher(database.settings.include), matcher(database.settings.exclude)

    def expansion(self) -> Expansion:
        settings = self._database.settings
        labels = [table.label for table in self._catalog]
        matched = matches(settings.include, settings.exclude, labels)
        selected = [table for table in self._catalog if self._selects(table.label)]
        gone = self._gone()
        new = [table.label for table in selected if self._known and self._name(table) not in self._known]
        ignored = frozenset(new if settings.new_tables == "ignore" else ())
        kept = [table for table in selected if table.label not in ignored]
        pipelines = self._pipelines(kept)
        self._report_unmatched(matched, labels, gone)
        self._report_missing(labels, gone)
        return Expansion(
            pipelines,
            {table.label: self._name(table) for table in kept},
            self._errors,
            matched,
            tuple(label for label in new if label not in ignored),
            tuple(label for label in new if label in ignored),
            tuple(gone),
            self._halted(labels, selected, new, gone),
        )

    def _selects(self, label: str) -> bool:
        return self._included(label) and not self._excluded(label)

    def _name(self, table: CatalogTable) -> str:
        return pipeline_name(self._database.name, table.schema, table.name)

    def _gone(self) -> list[str]:
        """Return, as ``schema.table``, the tables of known pipelines that are selected and that no longer exist.

        The name of its pipeline contains schema and table. If that name was cut because it was too long, the name of
        the pipeline is returned instead.
        """
        left = self._known - {self._name(table) for table in self._catalog}
        tables = {name: table_of_pipeline(self._database.name, name) for name in left}
        return sorted(table or name for name, table in tables.items() if table is None or self._selects(table))

    def _pipelines(self, tables: Sequence[CatalogTable]) -> dict[str, Pipeline]:
        """Return the pipelines of tables, by ``schema.table``; store an error for each table that gets no pipeline.

        A table gets no pipeline if its name is ambiguous, its declaration is invalid, or another table has the same
        target.
        """
        same_label = Counter(table.label for table in self._catalog)
        found: dict[str, Pipeline] = {}
        for table in tables:
            if same_label[table.label] > 1:
                self._errors[table.label] = self._error(
                    ("database",),
                    f"{table.label} names two tables, since one of their names contains a dot; rename one",
                )
                continue
            try:
                found[table.label] = table_pipeline(self._database, table, self._name(table))
            except TableError as error:
                self._errors[table.label] = error
        return self._without_shared_targets(found)

    def _without_shared_targets(self, pipelines: Mapping[str, Pipeline]) -> dict[str, Pipeline]:
        """Return the pipelines that share their target with no other pipeline; store an error for each of the others.

        :param pipelines: pipelines by ``schema.table``
        """
        by_target: dict[tuple[Any, ...], list[str]] = {}
        for label, pipeline in pipelines.items():
            sink = pipeline.sink
            by_target.setdefault((sink.type, sink.connection, *sink.place_parts), []).append(label)
        for labels in by_target.values():
            for label in labels if len(labels) > 1 else ():
                sink = pipelines[label].sink
                others = _listed([other for other in labels if other != label])
                override = self._database.tables.get(label, {})
                self._errors[label] = self._error(
                    place_in_file(("sink", sink.place_key), label, self._database.defaults, override),
                    f"{sink.place}, the target of {label}, is that of {others}, too; give each a target of its own",
                )
        return {label: pipeline for label, pipeline in pipelines.items() if label not in self._errors}

    def _report_unmatched(self, matched: Sequence[PatternMatch], labels: Sequence[str], gone: Sequence[str]) -> None:
        """Store an error for each pattern of ``include`` that matches neither a table nor a table that is gone.

        :param matched: the tables that each pattern matches
        :param labels: all tables of the catalog, as ``schema.table``
        :param gone: tables that were replicated and no longer exist
        """
        for at, match in enumerate(self._database.settings.include):
            found = next(item for item in matched if item.pattern == match and not item.excludes)
            if not found.tables and not any(map(matcher([match]), gone)):
                self._errors[match] = self._error(
                    ("database", "include", at),
                    f"{match} matches no table of the source{nearest_clause(match, labels)}",
                )

    def _report_missing(self, labels: Sequence[str], gone: Sequence[str]) -> None:
        """Store an error for each table in the section ``tables`` that neither exists nor was replicated before.

        :param labels: all tables of the catalog, as ``schema.table``
        :param gone: tables that were replicated and no longer exist
        """
        for label in self._database.tables:
            if label not in labels and label not in gone:
                self._errors[label] = self._error(
                    ("tables", label), f"the source has no table {label}{nearest_clause(label, labels)}"
                )

    def _halted(
        self, labels: Sequence[str], selected: Sequence[CatalogTable], new: Sequence[str], gone: Sequence[str]
    ) -> ConfigError | None:
        settings = self._database.settings
        if not selected:
            what = f"none of the {len(labels):,} tables of the source" if labels else "no table: the source has none"
            return self._error(("database", "include"), f"selects {what}")
        if new and settings.new_tables == "halt":
            text = f"halt: {_listed(new)} appeared; write new_tables: add to replicate them, or exclude them"
            return self._error(("database", "new_tables"), text)
        if gone and settings.gone_tables == "halt":
            text = f"halt: {_listed(gone)} disappeared; write gone_tables: keep to go on without them, or exclude them"
            return self._error(("database", "gone_tables"), text)
        return None

    def _error(self, path: KeyPath, text: str) -> ConfigError:
        database = self._database
        return ConfigError(error_message(database.file, [(database.line(path), Problem(path, text))], 1))


def _listed(labels: Sequence[str]) -> str:
    more = len(labels) - _MOST_NAMES
    return ", ".join(labels[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
