"""Create a ledger with many pipelines, long histories and many open batches, mostly inside PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from tests.integration.ledger.ledger_driver import BAD_DATA, LedgerDriver, delivered, failed

BIG = "big"
"""The pipeline with half of the receipts and all open batches."""

SPAN = 10
_AT_ONCE = 1000
_COLUMNS = "pipeline, generation, partition, range_start, range_end, " + ", ".join(tables.TOTALS)
_RECEIPTS = f"""
INSERT INTO ckpt_receipt ({_COLUMNS})
SELECT name, 1, 't', n * {SPAN}, n * {SPAN} + 9, 9, 9, 0, 0, 1, 0, 0, 0
FROM ckpt_pipeline, generate_series(0, CASE WHEN name = '{BIG}' THEN :big ELSE :other END - 1) AS n
"""
_PARTITIONS = f"""
UPDATE ckpt_partition SET committed = stands.at, planned_end = stands.at, low = stands.at * 9 / 10,
    bound = stands.at + 1000, moved_at = now(), read = stands.at, delivered = stands.at, batches = stands.at / {SPAN}
FROM (
    SELECT name, {SPAN} * CAST(CASE WHEN name = '{BIG}' THEN :big ELSE :other END AS bigint) AS at FROM ckpt_pipeline
) AS stands
WHERE pipeline = stands.name
"""
_SNAPSHOTS = """
INSERT INTO ckpt_partition_snapshot (pipeline, partition, at, generation, committed, planned_end)
SELECT pipeline, partition, now() - n * interval '5 minutes', 1, greatest(committed - n * 10, 0), planned_end
FROM ckpt_partition, generate_series(1, 288) AS n
"""
_DEAD_LETTERS = f"""
INSERT INTO ckpt_dead_letter (pipeline, generation, partition, seq, error_type, ordinal, attempt, epoch, range_start,
    range_end, records, state, at, replays)
SELECT name, 1, 't', n, 'Sink', 0, 1, 1, n * {SPAN}, n * {SPAN} + 9, 3, 'parked', now() - n * interval '1 minute', 0
FROM ckpt_pipeline, generate_series(0, 99) AS n
"""
_SCHEMA_VERSIONS = f"""
INSERT INTO ckpt_schema_version (pipeline, partition, version, generation, position, columns, fingerprint, decision,
    replanned, actor, epoch, at)
SELECT '{BIG}', 't', n, 1, planned_end - :versions + n, columns, repeat('0', 64),
    json_build_array('column c' || n % 20 || ' is wider: the target''s column is widened'), '[]', 'bench', 1, now()
FROM ckpt_partition, generate_series(1, :versions) AS n, LATERAL (
    SELECT json_agg(json_build_array('c' || k, k, CASE WHEN k = n % 20 THEN 'bigint' ELSE 'integer' END, 'read'))
    FROM generate_series(1, 20) AS k
) AS of_version (columns)
WHERE pipeline = '{BIG}'
"""
"""Versions of 20 columns at the last positions that are planned, so that all of them are in view."""


def fill(url: str, *, pipelines: int, receipts: int, batches: int, versions: int) -> None:
    """Make the ledger.

    :param url: URL of an empty PostgreSQL database
    :param pipelines: number of pipelines
    :param receipts: number of range receipts, none of which touches another
    :param batches: number of batches beyond the checkpoint of pipeline ``big``, whose first is held
    :param versions: number of schema versions of pipeline ``big``
    """
    migrate.upgrade(url, create=True)
    with Ledger.open(url) as ledger:
        for name in (BIG, *(f"p{number:03}" for number in range(1, pipelines))):
            driver = _driver(ledger, name).start("t")
            driver.plan(SPAN, 2 * SPAN)
            ledger.release(driver.lease)
    _write_past(url, {"big": receipts // 2, "other": receipts // 2 // max(1, pipelines - 1)})
    with Ledger.open(url) as ledger:
        _open_batches(_driver(ledger, BIG), batches)
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(_SCHEMA_VERSIONS), {"versions": versions})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE"))
    engine.dispose()


def _driver(ledger: Ledger, name: str) -> LedgerDriver:
    driver = LedgerDriver(ledger, of_task("bench", "manual__1", name, "replicate"), name)
    driver.now, driver.window = datetime.now(UTC), timedelta(days=7)
    return driver


def _write_past(url: str, counts: dict[str, int]) -> None:
    """Write receipts, without the primary key, which is then built at once; then what follows from them."""
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL maintenance_work_mem = '512MB'"))
        connection.execute(sa.text("DELETE FROM ckpt_batch"))
        connection.execute(sa.text("ALTER TABLE ckpt_receipt DROP CONSTRAINT ckpt_receipt_pkey"))
        connection.execute(sa.text(_RECEIPTS), counts)
        key = "pipeline, generation, partition, range_start"
        connection.execute(sa.text(f"ALTER TABLE ckpt_receipt ADD CONSTRAINT ckpt_receipt_pkey PRIMARY KEY ({key})"))
        connection.execute(sa.text(_PARTITIONS), counts)
        for statement in (_SNAPSHOTS, _DEAD_LETTERS):
            connection.execute(sa.text(statement))
    engine.dispose()


def _open_batches(driver: LedgerDriver, batches: int) -> None:
    """Plan batches, hold the first, and deliver half of those behind it."""
    at = driver.partition().planned_end
    for first in range(0, batches, _AT_ONCE):
        ends = [at + SPAN * (number + 1) for number in range(first, min(batches, first + _AT_ONCE))]
        planned = driver.plan(*ends)
        if first >= batches // 2:
            continue
        sent = driver.begin(planned)
        if first == 0:
            held, *sent = sent
            driver.settle(failed(held, BAD_DATA))
            driver.ledger.action(BIG, Action(ActionKind.HOLD, (held.key,)), actor="airflow:ada", reason="a full disk")
            driver.ledger.apply_stored_actions(driver.lease, now=driver.now)
        driver.settle(*map(delivered, sent))
    driver.ledger.release(driver.lease)
