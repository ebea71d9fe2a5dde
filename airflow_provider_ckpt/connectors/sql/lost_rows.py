"""Detect that a target was emptied, or restored without its newest rows, while its receipts remain.

With each new fence, and when a run that delivered something ends, the sink stores the greatest keys in the target. If
the target is empty later, or has none of these keys, rows were lost. This check needs only the right SELECT, and works
on any database. If only old rows are removed, no loss is reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.bookkeeping import FENCE, Bookkeeping
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause

if TYPE_CHECKING:
    import sqlalchemy as sa

_SAMPLED_ROWS = 20


def take_snapshot(connection: sa.Connection, target: Table, key: Sequence[str]) -> dict[str, Any]:
    """Return a snapshot of the target: whether it has rows, and the greatest of their keys, as a JSON-ready dict.

    The snapshot has no keys if the target has no unique key, or JSON cannot represent the keys' values.

    :param connection: an open connection
    :param target: the target
    :param key: key columns of an upsert; empty to use the primary key or another unique key
    """
    import sqlalchemy as sa

    columns = list(key or next(iter(target.unique), ()))
    table = table_clause(target, columns)
    if not columns:
        found = connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first()
        return {"rows": found is not None, "key": [], "values": []}
    query = sa.select(*table.c).order_by(*(column.desc() for column in table.c)).limit(_SAMPLED_ROWS)
    rows = [[_storable(value) for value in row] for row in connection.execute(query)]
    readable = all(value is not None for row in rows for value in row)
    return {"rows": bool(rows), "key": columns, "values": rows if readable else []}


def store_snapshot(
    connection: sa.Connection, target: Table, key: Sequence[str], bookkeeping: Bookkeeping, epoch: int
) -> None:
    """Store a snapshot of the target beside the fence; do nothing if the fence has another epoch.

    :param connection: an open connection
    :param target: the target
    :param key: key columns of an upsert; empty to use the primary key or another unique key
    :param bookkeeping: the bookkeeping tables
    :param epoch: epoch of the run
    """
    fences = bookkeeping.table(FENCE)
    snapshot = json.dumps(take_snapshot(connection, target, key))
    of_run = bookkeeping.mine(fences) & (fences.c.epoch == epoch)
    connection.execute(fences.update().where(of_run).values(target_snapshot=snapshot))


def find_loss(connection: sa.Connection, target: Table, snapshot: Mapping[str, Any]) -> str | None:
    """Return the evidence that delivered rows are gone from the target, for an error message; None if there is none.

    :param connection: an open connection
    :param target: the target
    :param snapshot: the last snapshot, as :func:`take_snapshot` returned it
    """
    import sqlalchemy as sa

    if not snapshot["rows"]:
        return None
    table = table_clause(target, snapshot["key"])
    if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is None:
        return f"target {target.label} is empty, but contained rows at the end of the last run"
    if not snapshot["values"] or not set(snapshot["key"]) <= set(target.by_name):
        return None
    same = sa.or_(
        *(
            sa.and_(*(table.c[name] == value for name, value in zip(snapshot["key"], row, strict=True)))
            for row in snapshot["values"]
        )
    )
    if connection.execute(sa.select(sa.literal(1)).select_from(table).where(same).limit(1)).first() is None:
        return (
            f"target {target.label} contains none of the {len(snapshot['values'])} rows that had the greatest "
            f"{', '.join(snapshot['key'])} at the end of the last run"
        )
    return None


def _storable(value: Any) -> Any:
    """Return a key's value in a form that JSON can hold and that the database finds equal to the value.

    Return None for a type that has no such form.
    """
    if isinstance(value, int | str):
        return value
    return str(value) if isinstance(value, Decimal | date | datetime) else None
