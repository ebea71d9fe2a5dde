"""A source and a target whose columns change, with their rows and schema versions."""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.core.schema_version import SchemaVersion
from airflow_provider_ckpt.replication.run.acquire import acquire
from tests.services.replication import Replication
from tests.services.tables import execute

EVOLVE = {"new_column": "evolve", "wider_type": "evolve", "dropped_column": "keep", "renamed_column": "follow"}
COLUMNS = "id, name, size, price, day"
VALUES = "i, 'n' || i, i, i / 4.0, date '2024-01-01' + i"


def insert(items: Replication, start: int, end: int, columns: str = COLUMNS, values: str = VALUES) -> None:
    """Rows with ids from ``start`` to before ``end``."""
    execute(items.dsn, f"INSERT INTO items ({columns}) SELECT {values} FROM generate_series({start}, {end - 1}) i")


def plan_only(items: Replication) -> None:
    """A run that ends after planning."""
    with acquire(items.setup()) as run:
        run.plan()
        run.finish()


def versions(items: Replication) -> list[SchemaVersion]:
    """The versions in the ledger."""
    return items.ledger.schema_versions("orders", "public.items")


def differences(items: Replication, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    """Rows that only one of source and target has; a row that one has twice counts once."""
    source, target = (f"SELECT {columns} FROM {name} WHERE {where}" for name in ("items", "items_target"))
    return execute(items.dsn, f"({source} EXCEPT {target}) UNION ALL ({target} EXCEPT {source})")


def target_columns(items: Replication) -> dict[str, str]:
    """Names and types of the target's columns."""
    rows = execute(
        items.dsn,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'items_target'::regclass AND attnum > 0 AND NOT attisdropped",
    )
    return dict(rows)
