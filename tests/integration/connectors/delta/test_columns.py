"""Columns of a Delta table: two writers that add some at the same time, and the lengths that Spark declares."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.core.batch import AttemptOutcome
from tests.integration.connectors.batches import content, task
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run


def test_two_that_add_columns_at_once_both_deliver(table: DeltaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Run(table, grows=True).fence(), Run(table, ledger="another", grows=True).fence()
    one.send(0)
    mine = one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))
    theirs = two.writer.deliver(task(2), content(2, b=pa.array([2] * 10)))
    with monkeypatch.context() as patch:
        rival = once(lambda: two.commit(theirs))
        patch.setattr(delta_table, "add_columns", before(delta_table.add_columns, rival))
        (outcome,) = one.commit(mine)

    assert outcome.outcome is AttemptOutcome.DELIVERED
    rows = table.rows()
    assert (rows[10], rows[20]) == ({"id": 10, "b": None, "a": 1}, {"id": 20, "b": 2, "a": None})


def test_a_text_longer_than_its_varchar_is_a_dead_letter(table: DeltaHarness) -> None:
    declared = {"short": "varchar(3)", "fixed": "char(2)", "any": "string"}
    limited = [
        Field(name, PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": kind})
        for name, kind in declared.items()
    ]
    DeltaTable.create(table.place, Schema([Field("id", PrimitiveType("long")), *limited]))
    run = Run(table).fence()
    short = pa.array(["日本語", "four", None, *["x"] * 7])
    fixed = pa.array(["ab", "ab", "abc", None, *["a"] * 6])

    (outcome,) = run.commit(
        run.writer.deliver(task(0), content(0, short=short, fixed=fixed, any=pa.array(["x" * 9] * 10)))
    )

    assert outcome.receipt is not None
    assert (outcome.receipt.counts.delivered, outcome.receipt.counts.dead_lettered) == (8, 2)
    assert [row["id"] for row in table.rows()] == [0, *range(3, 10)]
    assert [line["message"] for line in table.dead_letter_lines()] == [
        "column short is a text of more than 3 characters, and the table declares varchar(3)",
        "column fixed is a text of more than 2 characters, and the table declares char(2)",
    ]
