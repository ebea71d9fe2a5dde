"""``audit --against-sink`` on PostgreSQL: ledger and sink agree after bad rows, and each kind of damage is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.sink_audit import DifferenceKind
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.services.replication import Replication
from tests.services.tables import execute

if TYPE_CHECKING:
    from collections.abc import Iterable

BAD = (7, 42, 777)
RECEIPT = "ckpt_sink_receipt"
LETTER = "ckpt_sink_dead_letter"


def differences(replication: Replication, **options: Any) -> list[tuple[str, str | None]]:
    """Kind and batch of what they disagree about."""
    found: Iterable[dict[str, Any]] = audit_sink(replication.setup(), lambda _: None, **options)["differences"]
    return [(item["kind"], item["batch"]) for item in found]


@pytest.fixture
def delivered(orders: Replication) -> Replication:
    """1,000 orders in ten batches, three of which became dead letters."""
    execute(orders.dsn, "ALTER TABLE target ADD CHECK (id NOT IN (7, 42, 777))")
    summary = orders.run()
    assert (summary.records.delivered, summary.records.dead_lettered) == (997, 3)
    return orders


def test_they_agree_and_each_kind_of_damage_is_found(delivered: Replication) -> None:
    said: list[str] = []
    result = audit_sink(delivered.setup(), said.append)
    assert (result["agrees"], result["compared"]["target_rows"], result["compared"]["dead_letters"]) == (True, 997, 3)
    assert len(said) == 4

    partition = next(iter(delivered.ledger.partitions(delivered.pipeline.name)))
    name = f"{partition}#3"
    saved = f"CREATE TABLE saved AS SELECT * FROM {RECEIPT} WHERE seq = 3"
    execute(delivered.dsn, saved, f"DELETE FROM {RECEIPT} WHERE seq = 3")
    missing = (DifferenceKind.RECEIPT_MISSING.value, name)
    assert differences(delivered, shared=True) == [missing]
    execute(delivered.dsn, f"INSERT INTO {RECEIPT} SELECT * FROM saved")

    execute(delivered.dsn, f"UPDATE {RECEIPT} SET delivered = 99, filtered = 1 WHERE seq = 3")
    assert differences(delivered, shared=True) == [(DifferenceKind.RECEIPT_DIFFERS.value, name)]
    execute(delivered.dsn, f"UPDATE {RECEIPT} SET delivered = 100, filtered = 0 WHERE seq = 3")

    execute(delivered.dsn, "DELETE FROM target WHERE id = 500")
    assert differences(delivered) == [(DifferenceKind.ROWS_DIFFER.value, None)]
    assert differences(delivered, shared=True) == []
    execute(delivered.dsn, "INSERT INTO target SELECT * FROM orders WHERE id IN (500, 500)")

    execute(delivered.dsn, f"DELETE FROM {LETTER} WHERE position = 777")
    (found,) = differences(delivered)
    assert found[0] == DifferenceKind.DEAD_LETTERS_DIFFER.value
