"""Store JSON documents beside a target: replays and lists of source files, which share a bookkeeping table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.bookkeeping import REPLAY, Bookkeeping, now

if TYPE_CHECKING:
    import sqlalchemy as sa


def store_document(connection: sa.Connection, bookkeeping: Bookkeeping, name: str, document: Mapping[str, Any]) -> None:
    """Store a JSON document under a name in the open transaction; an earlier document of that name is overwritten.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param name: name of the replay's side partition, or of the list of source files
    :param document: the document
    """
    table, context = bookkeeping.table(REPLAY), bookkeeping.context
    connection.execute(table.delete().where(bookkeeping.mine(table) & (table.c.partition == name)))
    key = {"ledger": context.ledger, "pipeline": context.pipeline, "partition": name}
    connection.execute(table.insert().values(key | {"replay": json.dumps(document), "at": now()}))


def read_documents(connection: sa.Connection, bookkeeping: Bookkeeping) -> list[tuple[str, Any]]:
    """Return names and documents of the pipeline, in any order.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    """
    import sqlalchemy as sa

    table = bookkeeping.table(REPLAY)
    rows = connection.execute(sa.select(table.c.partition, table.c.replay).where(bookkeeping.mine(table))).all()
    return [(name, json.loads(document)) for name, document in rows]
