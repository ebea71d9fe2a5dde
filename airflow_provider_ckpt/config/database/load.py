"""Load a declaration of many tables from YAML or plain data; errors name the file, the line and the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fsdecode
from typing import Any

from pydantic import ValidationError

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.database.merge import merge
from airflow_provider_ckpt.config.database.model import Database
from airflow_provider_ckpt.config.database.patterns import matcher, nearest_clause
from airflow_provider_ckpt.config.load import (
    MAX_PROBLEMS,
    error_message,
    parse_document,
    read_text,
    refuse_invisible_characters,
    validate,
)
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Problem, to_problems
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection
from airflow_provider_ckpt.config.typed_sections import model_for
from airflow_provider_ckpt.config.unknown_keys import KeyPath
from airflow_provider_ckpt.core.errors import ConfigError

_KEYS = "a declaration of many tables needs name, database and defaults"

_FIELD = re.compile(r"\{([^{}]*)\}")
_OWN_KEYS: dict[KeyPath, str] = {
    ("name",): "has no effect here; the pipeline of a table is called <name>.<schema>.<table>",
    ("dag",): "has no effect here: all tables share a DAG",
}
"""Keys of a pipeline that neither ``defaults`` nor a table's section may have, with the reason for the error."""

_SHARED_KEYS: dict[KeyPath, str] = {
    ("source", "type"): "is the same for all tables; write it in defaults, or give this table a file of its own",
    ("source", "connection"): "is the same for all tables; write it in defaults, or give this table a file of its own",
}
"""Keys that ``defaults`` may have but a table's section may not, with the reason for the error."""


def load(path: str | PathLike[str]) -> Database:
    """Load the declaration of many tables from a YAML file.

    :param path: the file
    :raises ConfigError: if the file cannot be read or is invalid; the message has one line for each problem
    """
    return parse(read_text(path), fsdecode(path))


def parse(text: str, name: str = "<string>") -> Database:
    """Return the declaration of many tables that a YAML text contains.

    :param text: the YAML text
    :param name: name of the text in error messages
    :raises ConfigError: if the text is invalid; the message has one line for each problem
    """
    document = parse_document(text, name, _KEYS)
    return _checked(document.data, name, document.line)


def build(data: Mapping[str, Any], name: str = "database") -> Database:
    """Return the declaration of many tables that plain data contains, for declarations in Python instead of YAML.

    :param data: the declaration, with the same keys as in YAML
    :param name: name of the data in error messages
    :raises ConfigError: if the data is invalid; the message has one line for each problem, without line numbers
    """
    refuse_invisible_characters(data, name)
    return _checked(data, name, None)


def _checked(data: Mapping[str, Any], name: str, line: Callable[[KeyPath], int] | None) -> Database:
    database = validate(Database, data, name, line).in_file(name, line)
    problems = [*_source_problems(database), *_key_problems(database), *_default_problems(database)]
    problems += _override_problems(database)
    if problems:
        located = [(database.line(problem.path), problem) for problem in problems]
        located.sort(key=lambda item: (item[1].missing, item[0] or 0))
        raise ConfigError(error_message(name, located, len(located)))
    return database


def _source_problems(database: Database) -> Iterator[Problem]:
    """Yield a problem if ``defaults`` lacks the section ``source`` or its ``type``, which determine the database."""
    source = database.defaults.get("source")
    if not isinstance(source, Mapping):
        yield Problem(("defaults", "source"), "missing: it names the database", missing=True)
    elif not isinstance(source.get("type"), str):
        yield Problem(("defaults", "source", "type"), "missing: it names the kind of database", missing=True)


def _key_problems(database: Database) -> Iterator[Problem]:
    """Yield a problem for each key that ``defaults`` or a table's section must not have, and each wrong target name.

    A target name is wrong if it has a field in braces other than ``{schema}`` and ``{table}``.
    """
    yield from _section_problems(("defaults",), database.defaults, database.defaults, {})
    for label, override in database.tables.items():
        merged = merge(database.defaults, override)
        yield from _section_problems(("tables", label), override, merged, _SHARED_KEYS)


def _section_problems(
    at: KeyPath, given: Mapping[str, Any], merged: Mapping[str, Any], shared: dict[KeyPath, str]
) -> Iterator[Problem]:
    """Yield a problem for each key that one section of the file must not have, and for a wrong name of the target.

    A name of the target is wrong if it has a field in braces other than ``{schema}`` and ``{table}``.

    :param at: path of the section in the file: ``defaults``, or a table's section in ``tables``
    :param given: keys of the section
    :param merged: these keys merged with the defaults; they determine the types of source and sink
    :param shared: keys that this section must not have, with the reason, besides :data:`_OWN_KEYS`, which no section
        may have
    """
    source, sink = _place_key(SourceSection, merged, "source"), _place_key(SinkSection, merged, "sink")
    from_catalog: dict[KeyPath, str] = {("source", source): "is taken from the catalog; leave it out"} if source else {}
    for path, reason in {**_OWN_KEYS, **shared, **from_catalog}.items():
        if _value(given, path) is not None:
            yield Problem((*at, *path), reason)
    target = _value(given, ("sink", sink)) if sink else None
    for field in _FIELD.findall(target) if isinstance(target, str) else ():
        if field not in ("schema", "table"):
            yield Problem((*at, "sink", str(sink)), f"has {{{for_message(field)}}}; write {{schema}} or {{table}}")


def _place_key(model: type[ConnectorSection], data: Mapping[str, Any], side: str) -> str | None:
    return getattr(model_for(model, data.get(side)), "place_key", None)


def _value(data: Mapping[str, Any], path: KeyPath) -> Any:
    found: Any = data
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _default_problems(database: Database) -> Iterator[Problem]:
    """Yield a problem for each key of the defaults that is unknown, or whose value is invalid for every table.

    Missing keys and contradictions between keys are problems of single tables, because a table may give other keys.
    """
    probe = {**database.defaults, "name": "probe"}
    for side in ("source", "sink"):
        if isinstance(probe.get(side), Mapping):
            base = SourceSection if side == "source" else SinkSection
            key = _place_key(base, probe, side)
            probe[side] = {**probe[side], **({key: "probe"} if key else {})}
    try:
        Pipeline.model_validate(probe)
    except ValidationError as error:
        for problem in to_problems(Pipeline, probe, error, most=MAX_PROBLEMS)[0]:
            is_unknown_section = len(problem.path) == 1 and problem.path[0] not in Pipeline.model_fields
            if not problem.missing and (len(problem.path) > 1 or is_unknown_section):
                yield Problem(("defaults", *problem.path), problem.text)


def _override_problems(database: Database) -> Iterator[Problem]:
    """Yield a problem for each table that has a section in ``tables`` but is not replicated.

    A table is not replicated if no pattern of ``database.include`` matches it, or a pattern of ``database.exclude``
    does.
    """
    settings = database.settings
    included, excluded = matcher(settings.include), matcher(settings.exclude)
    for label in database.tables:
        if not included(label):
            text = "database.include does not include this table, so it has no keys"
            yield Problem(
                ("tables", label), f"{text}{nearest_clause(label, settings.include)}; include it, or leave it out"
            )
        elif excluded(label):
            yield Problem(("tables", label), "database.exclude excludes this table; leave one of the two out")
