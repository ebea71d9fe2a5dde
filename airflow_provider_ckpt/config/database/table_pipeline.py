"""Build the pipeline of one table from a declaration of many tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from airflow_provider_ckpt.config.database.catalog import CatalogTable
from airflow_provider_ckpt.config.database.merge import merge, place_in_file
from airflow_provider_ckpt.config.database.model import Database
from airflow_provider_ckpt.config.load import MAX_PROBLEMS, error_message
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Problem, to_problems
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection
from airflow_provider_ckpt.config.typed_sections import model_for
from airflow_provider_ckpt.config.unknown_keys import KeyPath
from airflow_provider_ckpt.core.errors import ConfigError

_FIELD = re.compile(r"\{(schema|table)\}")


class TableError(ConfigError):
    """Error of the invalid declaration of one table; other tables are not affected."""


def table_pipeline(database: Database, table: CatalogTable, name: str) -> Pipeline:
    """Return the pipeline of one table, built from the declaration's defaults, the table's own keys and the catalog.

    :param database: the declaration; its section ``tables`` has the table's own keys, if there are any
    :param table: the table
    :param name: name of the pipeline
    :raises TableError: if the table's keys are invalid, or name a column that the table lacks
    """
    override = database.tables.get(table.label, {})
    merged = merge(database.defaults, override)
    source, sink = _section(merged, "source"), _section(merged, "sink")
    problems = []
    if source is not None:
        source[model_for(SourceSection, source).place_key] = table.reference
        used = ("columns", "key") if source.get("mode") == "full" else ("cursor", "columns", "key")
        problems += _missing_columns(source, table, *(("source", key) for key in used))
    if sink is not None:
        problems += [*_fill_in_key(sink, table), *_fill_in_target(sink, table)]
        if "transform" not in merged:
            problems += _missing_columns(sink, table, ("sink", "key"))
    if problems:
        raise _error(database, table, override, problems, len(problems))
    data = {**merged, "name": name}
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        found, count = to_problems(
            Pipeline,
            data,
            error,
            order=lambda path: database.line(place_in_file(path, table.label, database.defaults, override)) or 0,
            most=MAX_PROBLEMS,
        )
        raise _error(database, table, override, found, count) from None


def _section(merged: dict[str, Any], side: str) -> dict[str, Any] | None:
    """Replace a section by a copy that can be changed, and return the copy; None if the section is no mapping.

    :param merged: the defaults of the declaration, merged with the table's own keys; the section in it is replaced
    :param side: name of the section, ``source`` or ``sink``
    """
    given = merged.get(side)
    if not isinstance(given, Mapping):
        return None
    copied = dict(given)
    merged[side] = copied
    return copied


def _missing_columns(section: Mapping[str, Any], table: CatalogTable, *paths: KeyPath) -> list[Problem]:
    """Return a problem for each key that names a column which the table lacks.

    :param section: the section ``source`` or ``sink`` of the table
    :param table: the table
    :param paths: paths of the keys of the section whose values are names of columns, such as ``("source", "cursor")``
    """
    found = []
    for path in paths:
        given = section.get(str(path[-1]))
        names = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
        missing = [name for name in names if isinstance(name, str) and name not in table.columns]
        if missing:
            columns = ", ".join(table.columns[:30]) + (" and more" if len(table.columns) > 30 else "")
            found.append(Problem(path, f"{table.label} has no column {', '.join(missing)}; its columns: {columns}"))
    return found


def _fill_in_key(sink: dict[str, Any], table: CatalogTable) -> list[Problem]:
    """Set the ``key`` of an upserting sink without one to the table's primary key.

    :param sink: the section ``sink``, which is changed
    :param table: the table
    :return: a problem if the table has no primary key; else empty
    """
    if sink.get("mode") != "upsert" or "key" in sink:
        return []
    if not table.key:
        return [Problem(("sink", "key"), f"{table.label} has no primary key; name the columns that identify a row")]
    sink["key"] = list(table.key)
    return []


def _fill_in_target(sink: dict[str, Any], table: CatalogTable) -> list[Problem]:
    """Replace ``{schema}`` and ``{table}`` in the name of the target by the names of the table.

    :param sink: the section ``sink``, which is changed
    :param table: the table
    :return: a problem if the name of schema or table cannot be a part of the target's name; else empty
    """
    model = model_for(SinkSection, sink)
    key = getattr(model, "place_key", None)
    template = sink.get(key) if key is not None else None
    if key is None or not isinstance(template, str):
        return []
    names = {"schema": table.schema, "table": table.name}
    try:
        sink[key] = _FIELD.sub(lambda found: model.name_in_place(names[found[1]]), template)  # type: ignore[attr-defined]
    except ValueError as error:
        return [Problem(("sink", key), f"{error}; write the target out")]
    return []


def _error(
    database: Database, table: CatalogTable, override: Mapping[str, Any], problems: list[Problem], count: int
) -> TableError:
    located = [(place_in_file(item.path, table.label, database.defaults, override), item) for item in problems]
    lines = [(database.line(path), Problem(path, item.text, item.missing)) for path, item in located]
    message = error_message(database.file, lines, count)
    return TableError(
        message,
        hint=f"Give {table.label} keys of its own in tables.{table.label}, or add it to database.exclude.",
    )
