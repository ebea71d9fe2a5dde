"""Migrations keep a ledger's data when they upgrade and downgrade it, whatever the revisions on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from airflow_provider_ckpt.ledger.types import Totals
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered, failed

OLD = "0001"
RENAMED_TABLES = {"ckpt_intent": "ckpt_stored_action", "ckpt_mark": "ckpt_partition_snapshot"}
RENAMED_COLUMNS = {"who": "actor", "why": "reason"}
Rows = dict[str, list[dict[str, Any]]]


def rows(url: str) -> Rows:
    """Every row of every table, as the database has it now."""
    engine = create_engine(parse_url(url))
    found: Rows = {}
    with engine.connect() as connection:
        present = sa.MetaData()
        present.reflect(connection)
        for table in present.sorted_tables:
            if table.name != tables.VERSION_TABLE:
                content = connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()
                found[table.name] = [dict(row) for row in content]
    engine.dispose()
    return found


def schema(url: str) -> dict[str, Any]:
    """Columns, keys, checks and indexes of every table, in an order that does not matter."""
    engine = create_engine(parse_url(url))
    inspector = sa.inspect(engine)
    found = {}
    for table in inspector.get_table_names():
        columns = {
            c["name"]: (str(c["type"]), c["nullable"], c["default"] is None, bool(c.get("autoincrement")))
            for c in inspector.get_columns(table)
        }
        checks = sorted(str(c["sqltext"]) for c in inspector.get_check_constraints(table))
        indexes = sorted((str(i["name"]), tuple(i["column_names"])) for i in inspector.get_indexes(table))
        found[table] = (columns, inspector.get_pk_constraint(table)["constrained_columns"], checks, indexes)
    engine.dispose()
    return found


def fill(url: str) -> LedgerDriver:
    """A ledger with a bit of everything that both revisions know."""
    with Ledger.open(url) as ledger:
        driver = LedgerDriver(ledger).start("t", "u")
        driver.deliver(10, 20, name="u")
        driver.deliver(10)
        first, second, third = driver.send(20, 30, 40)
        driver.settle(failed(first), delivered(second, dead=2, dead_letters={"Sink": 2}))
        driver.action(ActionKind.HOLD, third)
        driver.wait(hours=1).action(ActionKind.REWIND, positions={"u": 5})
        driver.deliver(12, 15, name="u")
        ledger.release(driver.lease)
    return driver


def at_old_revision(url: str) -> None:
    """Make and fill a ledger, and take it to the older revision."""
    migrate.upgrade(url, create=True)
    fill(url)
    migrate.downgrade(url, OLD)


def test_what_both_revisions_know_is_the_same_down_and_up_again(empty_url: str) -> None:
    at_old_revision(empty_url)
    before = rows(empty_url)
    migrate.upgrade(empty_url)
    after = rows(empty_url)
    for table, content in before.items():
        names = set(content[0]) if content else set()
        now = after[RENAMED_TABLES.get(table, table)]
        assert [{name: row[RENAMED_COLUMNS.get(name, name)] for name in names} for row in now] == content
    migrate.downgrade(empty_url, OLD)
    assert rows(empty_url) == before
    assert {name for name, content in before.items() if content} >= {"ckpt_batch", "ckpt_receipt", "ckpt_attempt"}


def test_the_older_revision_was_filled_before_any_ledger_had_totals(empty_url: str) -> None:
    at_old_revision(empty_url)
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        found = ledger.partitions("orders")
        assert found["t"].totals == Totals(Counts(10, 10), 1)
        assert found["u"].totals == Totals(Counts(10, 10), 2)
        assert (found["t"].low_watermark, found["u"].low_watermark) == (10, 15)
        assert ledger.positions_at("orders", datetime.now(UTC)) == {"t": 10, "u": 15}
        assert ledger.audit("orders")["violations"] == []
        with ledger._engine.connect() as connection:
            c = tables.generation.c
            sums = connection.execute(sa.select(c.partition, c.read, c.batches).where(c.ended_at.is_not(None)))
            assert [tuple(row) for row in sums] == [("u", 20, 2)]


def test_an_upgraded_ledger_goes_on_where_it_stood(empty_url: str) -> None:
    at_old_revision(empty_url)
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).wait(hours=2)
        driver.reconcile()
        driver.action(ActionKind.RELEASE)
        driver.settle(*map(delivered, driver.begin(driver.partition().blocking.values())))
        driver.deliver(50)
        assert driver.partition().committed == 50
        assert driver.ranges() == [(0, 50)]
        assert ledger.audit("orders")["violations"] == []


def test_receipts_that_were_single_are_there_after_going_down(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        driver.window = timedelta(days=1)
        driver.deliver(10, 20, 30)
    migrate.downgrade(empty_url, OLD)
    assert [(row["range_start"], row["range_end"]) for row in rows(empty_url)["ckpt_receipt"]] == [
        (0, 10),
        (10, 20),
        (20, 30),
    ]
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger)
        driver.deliver(40)
        assert ledger.audit("orders")["violations"] == []
        assert driver.record().totals.batches == 4


def test_a_side_partition_that_is_done_goes_when_going_down(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        driver.deliver(10)
        driver.action(ActionKind.REPLAY, ranges=[("t", Range(0, 5))])
        (side,) = [name for name in ledger.partitions("orders") if name != "t"]
        with pytest.raises(LedgerStateError, match="not done"):
            migrate.downgrade(empty_url, OLD)
        driver.deliver(5, name=side)
    migrate.downgrade(empty_url, OLD)
    assert [row["partition"] for row in rows(empty_url)["ckpt_partition"]] == ["t"]


def test_a_ledger_that_has_adopted_receipts_does_not_go_down(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        ledger.adopt(driver.lease, "another", actor="ann", reason="moved")
    with pytest.raises(LedgerStateError, match="adopted"):
        migrate.downgrade(empty_url, OLD)
    assert migrate.current_revision(empty_url) == migrate.head()
    assert rows(empty_url)["ckpt_pipeline"][0]["adopted"] == "another"


def test_an_upgraded_ledger_has_the_very_schema_of_a_fresh_one(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    fresh = schema(empty_url)
    fill(empty_url)
    migrate.downgrade(empty_url, OLD)
    migrate.upgrade(empty_url)
    assert schema(empty_url) == fresh
    migrate.downgrade(empty_url, "base")
    migrate.upgrade(empty_url)
    assert schema(empty_url) == fresh


def test_the_metadata_makes_the_very_schema_that_the_migrations_make(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    migrated = schema(empty_url)
    migrate.downgrade(empty_url, "base")
    engine = create_engine(parse_url(empty_url))
    tables.metadata.create_all(engine)
    engine.dispose()
    assert schema(empty_url) == migrated
