"""Read the versions of a source's columns."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.schema_version import SchemaVersion
from airflow_provider_ckpt.ledger.store import tables


def load(connection: Connection, pipeline: str, partition: str) -> list[SchemaVersion]:
    """Return the versions of a source partition, oldest first; empty if it has none.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partition: id of the source partition
    """
    return [SchemaVersion.from_json(row) for row in _rows(connection, pipeline) if row["partition"] == partition]


def newest(connection: Connection, pipeline: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest versions of a pipeline, oldest first, JSON-ready; empty if it has none.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param limit: greatest number of versions
    """
    names = ("partition", "version", "position", "decision", "actor", "epoch", "at")
    found = [{name: row[name] for name in names} for row in _rows(connection, pipeline)[-limit:]]
    return [{**row, "at": row["at"].isoformat()} for row in found]


def history(connection: Connection, pipeline: str) -> list[dict[str, Any]]:
    """Return all versions of a pipeline with their columns, by partition and version, JSON-ready.

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


def _rows(connection: Connection, pipeline: str) -> list[dict[str, Any]]:
    """Return the rows of all versions of a pipeline, by partition and version."""
    columns = tables.schema_version.c
    query = (
        sa.select(tables.schema_version)
        .where(columns.pipeline == pipeline)
        .order_by(columns.partition, columns.version)
    )
    return [dict(row) for row in connection.execute(query).mappings()]
