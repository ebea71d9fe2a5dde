"""A command loads only the batches that it concerns, and decides as if it had loaded all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.connectors.source_plan import Plan, SourceFile
from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, ended, failed

MANY = 20_000


def test_settling_a_few_of_many_loads_those_few(driver: LedgerDriver) -> None:
    batches = driver.send(*range(10, 1010, 10))
    with driver.ledger._writing() as connection:
        work = UnitOfWork(connection, driver.lease, NOW, {"t": [3, 4, 5]})
        assert sorted(work.item("t").partition.batches) == [3, 4, 5]
    driver.settle(*map(delivered, batches[3:6]))
    with driver.ledger._writing() as connection:
        work = UnitOfWork(connection, driver.lease, NOW, {"t": [50]})
        assert sorted(work.item("t").partition.batches) == [3, 4, 5, 50]
    assert (driver.partition().committed, len(driver.partition().batches)) == (0, 100)


def test_the_checkpoint_moves_over_what_other_commands_have_resolved(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30, 40, 50)
    for batch in reversed(batches[1:]):
        assert driver.settle(delivered(batch)).checkpoint == {"t": 0}
    assert driver.settle(delivered(batches[0])).checkpoint == {"t": 50}
    assert driver.receipts() == [(0, 50, 5, 50)]


def test_a_cancelled_batch_that_is_not_named_holds_the_checkpoint(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30)
    driver.settle(ended(batches[1], AttemptOutcome.CANCELLED))
    driver.settle(delivered(batches[0]), delivered(batches[2]))
    assert driver.partition().committed == 10
    (again,) = driver.begin([batches[1]])
    driver.settle(delivered(again))
    assert driver.partition().committed == 30


def test_lifting_a_watermark_that_cut_off_a_gap_lets_the_gap_go(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    driver.settle(ended(second, AttemptOutcome.CANCELLED))
    stranger = Receipt(first.key, Range(5, 10), Verdict.DELIVERED, 1, 1, Counts(5, 5), NOW)
    driver.settle(delivered_as(first.key, stranger))
    driver.settle(*map(delivered, driver.begin(driver.plan(5, start=0))))
    assert driver.partition().committed == 0
    (again,) = driver.begin([second])
    driver.settle(delivered(again))
    assert driver.partition().committed == 20


def delivered_as(key: BatchKey, receipt: Receipt) -> Outcome:
    """A report with a receipt that does not fit the batch."""
    return Outcome(key, 1, AttemptOutcome.DELIVERED, receipt)


def test_a_receipt_with_another_range_supersedes_batches_that_were_not_named(driver: LedgerDriver) -> None:
    first, second, third = driver.send(10, 20, 30)
    receipt = Receipt(first.key, Range(0, 15), Verdict.DELIVERED, 1, 1, Counts(15, 15), NOW)
    driver.settle(delivered_as(first.key, receipt))
    assert driver.states() == {second.key.seq: BatchState.SUPERSEDED, third.key.seq: BatchState.IN_FLIGHT}
    assert driver.partition().gaps() == [Range(15, 20)]
    (filled,) = driver.plan(20, start=15)
    with pytest.raises(LedgerStateError, match="does not continue"):
        driver.plan(20, start=15)
    driver.settle(*map(delivered, [*driver.begin([filled]), third]))
    assert driver.partition().committed == 30


def test_a_failure_leaves_the_batches_that_are_not_named_as_they_are(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30)
    driver.action(ActionKind.HOLD, batches[2])
    driver.settle(failed(batches[1]))
    assert driver.states() == {0: BatchState.IN_FLIGHT, 1: BatchState.PLANNED, 2: BatchState.HELD}


def test_text_that_no_database_stores_is_one_clear_line_in_bulk_too(driver: LedgerDriver) -> None:
    files = [SourceFile(n, f"/in/{n}\ud800.json", 10 * n, 10, "e") for n in range(3)]
    with pytest.raises(LedgerStateError, match="cannot store a value"):
        driver.ledger.plan(driver.lease, Plan(files=files))
    assert driver.ledger.files("orders") == []


@pytest.mark.parametrize("text", ["tab\there", "line\nbreak\r", "back\\slash \\N", "üñí 🦜", "", "\\.", "quo'te\""])
def test_any_other_text_comes_back_as_it_was(driver: LedgerDriver, text: str) -> None:
    files = [SourceFile(n, f"/in/{n}{text}", 10 * n, 10, text) for n in range(3)]
    driver.ledger.plan(driver.lease, Plan(files=files))
    assert driver.ledger.files("orders") == files


@pytest.fixture
def scans(ledger: Ledger) -> Iterator[list[str]]:
    """Statements that the database would answer by reading all receipts."""
    found: list[str] = []
    explaining = [False]
    prefix = "EXPLAIN " if ledger._engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if explaining[0] or many or "ckpt_receipt" not in statement or statement.startswith(("DELETE", "INSERT")):
            return
        explaining[0] = True
        plan = "\n".join(str(row) for row in connection.exec_driver_sql(prefix + statement, parameters))
        explaining[0] = False
        if any(sign in plan for sign in ("Seq Scan on ckpt_receipt", "SCAN ckpt_receipt", "_1 (pipeline=?)")):
            found.append(f"{statement}\n{plan}")

    sa.event.listen(ledger._engine, "before_cursor_execute", note)
    yield found
    sa.event.remove(ledger._engine, "before_cursor_execute", note)


def test_no_command_and_no_status_reads_the_receipts_as_a_whole(driver: LedgerDriver, scans: list[str]) -> None:
    rows = [
        {"pipeline": "orders", "generation": 1, "partition": name, "range_start": 10 * n, "range_end": 10 * n + 9}
        | dict.fromkeys(tables.TOTALS, 1)
        | {"at": NOW}
        for name in ("s", "t")
        for n in range(MANY)
    ]
    driver.start("u", base=10 * MANY)
    with driver.ledger._engine.begin() as connection:
        bulk_sql.insert(connection, tables.receipt, rows)
        stand = {"committed": 10 * MANY, "planned_end": 10 * MANY, "low": 10 * MANY}
        connection.execute(tables.partition.update().values(stand))
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("ANALYZE"))
    end = 10 * MANY
    for window in (None, driver.now - NOW, NOW - NOW.replace(year=2025)):
        driver.window = window
        end += 30
        driver.settle(*map(delivered, [*driver.send(end - 20, end), *driver.send(end, name="u")]))
        driver.again().reconcile()
    driver.ledger.status("orders")
    driver.ledger.recovery_plan("orders", settle_lag=NOW - NOW)
    driver.ledger.audit("orders", quick=True)
    assert scans == []
    assert driver.partition().committed == end
