"""Read the schema versions of a pipeline from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.column_change import Change, source_changes
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.schema_version import SchemaVersion, VersionColumn
from airflow_provider_ckpt.ledger.store import tables

MAX_SHOWN = 50
"""Maximum number of schema versions of a partition that a number line shows, those at the greatest positions."""

MAX_COLUMNS = 5000
"""Maximum number of columns of all shown versions together, unless one version alone has more."""

_S = tables.schema_version.c


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """Schema version of a source partition, with its difference from the version before it.

    :param number: number of the version, from 1
    :param generation: generation in which the version began
    :param position: position from which batches are planned under the version
    :param columns: number of columns of the version
    :param changes: changes of the source's columns since the version before; empty for the first version
    :param decision: the decision about each changed column, as a sentence
    :param actor: owner of the lease under which the version was recorded
    :param at: when the version was recorded
    """

    number: int
    generation: int
    position: int
    columns: int
    changes: Sequence[Change]
    decision: Sequence[str]
    actor: str
    at: datetime


def load(connection: Connection, pipeline: str, partition: str) -> list[SchemaVersion]:
    """Return the schema versions of a source partition, oldest first; empty if it has none.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partition: id of the source partition
    """
    return [SchemaVersion.from_json(row) for row in _rows(connection, pipeline) if row["partition"] == partition]


def newest(connection: Connection, pipeline: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest schema versions of a pipeline, oldest first, JSON-ready; empty if it has none.

    The columns of the versions are left out.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param limit: maximum number of versions
    """
    names = ("partition", "version", "position", "decision", "actor", "epoch", "at")
    found = [{name: row[name] for name in names} for row in _rows(connection, pipeline)[-limit:]]
    return [{**row, "at": row["at"].isoformat()} for row in found]


def history(connection: Connection, pipeline: str) -> list[dict[str, Any]]:
    """Return all schema versions of a pipeline with their columns, by partition and version, JSON-ready.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    """
    names = ("partition", "version", "generation", "position", "fingerprint", "decision", "actor", "epoch")
    parts = ("name", "number", "type", "state")
    return [
        {
            **{name: row[name] for name in names},
            "at": row["at"].isoformat(),
            "columns": [dict(zip(parts, column, strict=False)) for column in row["columns"]],
        }
        for row in _rows(connection, pipeline)
    ]


def in_window(connection: Connection, pipeline: str, partition: str, window: Range) -> tuple[list[ShownVersion], bool]:
    """Return the schema versions that begin in a window or at its end, by position, and whether there are more.

    At most :data:`MAX_SHOWN` versions are returned, or fewer if the table has many columns (:data:`MAX_COLUMNS`). If
    there are more, those with the greatest positions are chosen. The cost does not depend on the number of versions.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partition: id of the source partition
    :param window: the window
    """
    of_partition = sa.and_(_S.pipeline == pipeline, _S.partition == partition)
    query = (
        sa.select(_S.version, _S.generation, _S.position, _S.decision, _S.actor, _S.at)
        .where(of_partition, _S.position >= window.start, _S.position <= window.end)
        .order_by(_S.position.desc(), _S.version.desc())
        .limit(MAX_SHOWN + 1)
    )
    found = list(connection.execute(query))
    if not found:
        return [], False
    width = sa.select(sa.func.json_array_length(_S.columns)).where(of_partition, _S.version == found[0].version)
    room = max(1, MAX_COLUMNS // max(1, connection.execute(width).scalar_one()))
    rows = found[: min(room, MAX_SHOWN)][::-1]
    needed = {number for row in rows for number in (row.version - 1, row.version)}
    query_columns = sa.select(_S.version, _S.columns).where(of_partition, _S.version.in_(sorted(needed)))
    columns = {row.version: row.columns for row in connection.execute(query_columns)}
    shown = [
        ShownVersion(
            row.version,
            row.generation,
            row.position,
            len(columns[row.version]),
            _changes(columns[row.version - 1], columns[row.version]) if row.version > 1 else (),
            row.decision,
            row.actor,
            row.at,
        )
        for row in rows
    ]
    return shown, len(found) > len(shown)


def _changes(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> Sequence[Change]:
    """Return the changes between two stored lists of columns.

    Only columns that differ are parsed, because a table may have a thousand columns of which a version changes one.
    """
    known, now = set(map(tuple, before)), set(map(tuple, after))
    changed = [VersionColumn.from_json(column) for column in before if tuple(column) not in now]
    return source_changes(changed, [VersionColumn.from_json(column) for column in after if tuple(column) not in known])


def _rows(connection: Connection, pipeline: str) -> list[dict[str, Any]]:
    """Return the rows of all schema versions of a pipeline, by partition and version."""
    columns = tables.schema_version.c
    query = (
        sa.select(tables.schema_version)
        .where(columns.pipeline == pipeline)
        .order_by(columns.partition, columns.version)
    )
    return [dict(row) for row in connection.execute(query).mappings()]
