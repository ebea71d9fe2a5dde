"""The size of the ledger and the cost of its commands depend on the number of gaps, not of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered, ended, failed, receipt_of

COUNT = 1000


@pytest.fixture
def statements(ledger: Ledger) -> Iterator[list[str]]:
    """Every statement that the ledger sends."""
    sent: list[str] = []

    def note(*args: object) -> None:
        sent.append(str(args[2]))

    sa.event.listen(ledger._engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(ledger._engine, "before_cursor_execute", note)


def counted(statements: list[str], action: Callable[[], object]) -> int:
    """Return the number of statements that an action executes."""
    before = len(statements)
    action()
    return len(statements) - before


def rows(ledger: Ledger, table: sa.Table) -> int:
    """Return the number of rows in a table."""
    with ledger._engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_a_thousand_batches_take_no_more_statements_than_two(driver: LedgerDriver, statements: list[str]) -> None:
    def cycle(count: int) -> list[int]:
        start = driver.partition().planned_end
        ends = range(start + 10, start + 10 * count + 1, 10)
        return [
            counted(statements, lambda: driver.plan(*ends)),
            counted(statements, lambda: driver.begin(driver.partition().batches.values())),
            counted(statements, lambda: driver.settle(*map(delivered, driver.partition().batches.values()))),
        ]

    cycle(2)  # the first one keeps a mark of where the partition began
    small = cycle(2)
    assert cycle(COUNT) == small
    assert max(small) <= 16
    assert driver.receipts() == [(0, (COUNT + 4) * 10, COUNT + 4, (COUNT + 4) * 10)]


def test_failures_cancels_fences_and_imports_take_few_statements_too(
    driver: LedgerDriver, statements: list[str]
) -> None:
    batches = driver.send(*range(10, 10 * COUNT + 1, 10))
    errors = [ErrorInfo(ErrorType.SINK, f"refused {n}", recoverable=True, sqlstate="40001") for n in range(COUNT)]
    mixed = [
        failed(batch, error) if n % 2 else ended(batch, AttemptOutcome.NOT_ATTEMPTED)
        for n, (batch, error) in enumerate(zip(batches, errors, strict=True))
    ]
    assert counted(statements, lambda: driver.settle(*mixed)) <= 10
    driver.begin(batches[::2])
    assert counted(statements, lambda: driver.again().reconcile()) <= 24
    driver.begin(batches[::2])
    assert counted(statements, lambda: driver.reconcile(*map(receipt_of, batches[:-1]))) <= 18
    assert driver.partition().committed == 10 * COUNT - 10


def test_what_the_checkpoint_has_passed_leaves_one_row(driver: LedgerDriver) -> None:
    for _ in range(3):
        start = driver.partition().planned_end
        driver.settle(*map(delivered, driver.send(*range(start + 1, start + 101))))
    sizes = {table.name: rows(driver.ledger, table) for table in (tables.batch, tables.attempt, tables.receipt)}
    assert sizes == {"ckpt_batch": 0, "ckpt_attempt": 0, "ckpt_receipt": 1}
    assert rows(driver.ledger, tables.event) < 20


def test_the_attempts_of_a_batch_are_kept_until_it_is_passed(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    driver.settle(failed(first), delivered(second))
    with driver.ledger._engine.connect() as connection:
        columns = tables.attempt.c
        found = connection.execute(sa.select(columns.seq, columns.outcome, columns.error_type, columns.run)).all()
    assert sorted(map(tuple, found)) == [(0, "failed", "Sink", "run 1"), (1, "delivered", None, "run 1")]
