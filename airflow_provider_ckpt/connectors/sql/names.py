"""Split names of tables, and name a table for other systems and users: its dataset, and the place of dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline

DEAD_LETTER = "ckpt_sink_dead_letter"

_PART = r'"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|([^".`]+)'
_NAME = re.compile(rf"(?:(?:{_PART})\.)?(?:{_PART})")


def split_name(name: str) -> tuple[str | None, str]:
    """Return schema and table of ``schema.table``; the schema is None if it is left out.

    Each part may be in double quotes or backticks.

    :raises ConfigError: if the name is neither ``table`` nor ``schema.table``
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is not the name of a table.",
            hint='Write schema.table; put a part that contains a dot in "quotes".',
        )
    return _unquoted(*found.groups()[:3]), _unquoted(*found.groups()[3:]) or ""


def quote(name: str) -> str:
    """Return the name of a schema or table in double quotes, which :func:`split_name` removes again."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _unquoted(double: str | None, back: str | None, bare: str | None) -> str | None:
    if double is not None:
        return double.replace('""', '"')
    return back.replace("``", "`") if back is not None else bare


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the namespace and name of a table's dataset by OpenLineage's rules.

    :param section: section ``source`` or ``sink`` of the pipeline, which names the table
    :param connection: the Airflow connection of the database
    """
    from airflow_provider_ckpt.connectors.sql.installed_dialects import find_dialect

    assert connection is not None
    schema, name = split_name(section.place)
    namespace, database = find_dialect(connection, section.side).namespace(connection)
    return namespace, ".".join(filter(None, [schema or database, name]))


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages: ``table <name> of connection <id>``.

    See :class:`SinkType`.

    :param pipeline: the pipeline; the table is in the target's schema
    """
    schema, dot, _table = pipeline.sink.place.rpartition(".")
    return f"table {schema}{dot}{DEAD_LETTER} of connection {pipeline.sink.connection}"
