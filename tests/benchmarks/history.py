"""Give a ledger a long history: the database itself creates millions of range receipts that cannot be merged."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url

PIPELINE = "bench"
GENERATION = 2
SPAN = 10
"""Each receipt covers nine of ten positions, so that none touches the next."""

_PARTS = {(GENERATION, "t"): 0.6, (GENERATION, "u"): 0.2, (GENERATION - 1, "t"): 0.2}
"""Places of the receipts: most in the very generation that goes on, the rest beside and before it."""

_COLUMNS = "pipeline, generation, partition, range_start, range_end, " + ", ".join(tables.TOTALS)
_VALUES = f"'{PIPELINE}', :generation, :partition, n * {SPAN}, n * {SPAN} + 9, 9, 9, 0, 0, 1, 0, 0, 0"


def fill(url: str, receipts: int) -> None:
    """Store receipts, and leave the partitions where the last of them ends."""
    engine = create_engine(parse_url(url))
    parts: list[dict[str, Any]] = [
        {"generation": generation, "partition": name, "count": int(receipts * share)}
        for (generation, name), share in _PARTS.items()
    ]
    if engine.dialect.name == "postgresql":
        _fill_postgres(engine, parts)
    else:
        engine.dispose()
        _fill_sqlite(Path(str(parse_url(url).database)), parts)
    with engine.begin() as connection:
        for part in parts:
            if part["generation"] == GENERATION:
                connection.execute(tables.partition.update().where(_here(part)).values(_stand(part["count"])))
        connection.execute(tables.pipeline.update().values(generation=GENERATION))
    engine.dispose()


def _here(part: dict[str, Any]) -> sa.ColumnElement[bool]:
    c = tables.partition.c
    return sa.and_(c.pipeline == PIPELINE, c.partition == part["partition"])


def _stand(count: int) -> dict[str, int]:
    end = count * SPAN
    sums = dict.fromkeys(tables.TOTALS, 0) | {"read": 9 * count, "delivered": 9 * count, "batches": count}
    return {"generation": GENERATION, "committed": end, "planned_end": end, "low": end, **sums}


def _fill_postgres(engine: sa.Engine, parts: list[dict[str, Any]]) -> None:
    """Without the primary key, which is then built at once."""
    key = "pipeline, generation, partition, range_start"
    with engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL maintenance_work_mem = '512MB'"))
        connection.execute(sa.text("ALTER TABLE ckpt_receipt DROP CONSTRAINT ckpt_receipt_pkey"))
        for part in parts:
            connection.execute(
                sa.text(
                    f"INSERT INTO ckpt_receipt ({_COLUMNS}) SELECT {_VALUES} FROM generate_series(0, :count - 1) AS n"
                ),
                part,
            )
        connection.execute(sa.text(f"ALTER TABLE ckpt_receipt ADD CONSTRAINT ckpt_receipt_pkey PRIMARY KEY ({key})"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE"))
        connection.execute(sa.text("CHECKPOINT"))


def _fill_sqlite(path: Path, parts: list[dict[str, Any]]) -> None:
    """Without a journal: whoever loses a benchmark's data makes it again."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("BEGIN")
    for part in sorted(parts, key=lambda part: (part["generation"], part["partition"])):
        connection.execute(
            "WITH RECURSIVE series(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n + 1 < :count) "
            f"INSERT INTO ckpt_receipt ({_COLUMNS}) SELECT {_VALUES} FROM series",
            part,
        )
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def size(url: str) -> int:
    """Bytes that the ledger takes on disk, without what deleted rows have left behind."""
    engine = create_engine(parse_url(url))
    if engine.dialect.name == "sqlite":
        path = Path(str(parse_url(url).database))
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return path.stat().st_size
    relations = "SELECT oid FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ckpt%'"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as session:
        session.execute(sa.text("VACUUM FULL"))
        total = session.execute(sa.text(f"SELECT sum(pg_total_relation_size(oid)) FROM ({relations}) AS mine"))
        taken = int(total.scalar_one())
    engine.dispose()
    return taken
