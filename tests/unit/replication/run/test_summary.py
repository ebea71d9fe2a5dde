"""A run's summary: its JSON, and the sum of the summaries of several tasks."""

from __future__ import annotations

import json

from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.run.summary import RunSummary


def _summary(**values: object) -> RunSummary:
    base: dict[str, object] = {"pipeline": "orders", "epoch": 3, "checkpoint": {"t": {"before": 0, "after": 10}}}
    return RunSummary(**{**base, **values})  # type: ignore[arg-type]


def test_json_gives_the_same_summary_back() -> None:
    summary = _summary(records=Counts(5, 3, 1, 1), retried=2, halted=ErrorInfo(ErrorType.IO, "full"))
    assert RunSummary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_records_are_printed_with_every_fate() -> None:
    printed = _summary(records=Counts(5, 3, 1, 1), retried=2).to_json()["records"]
    assert printed == {"read": 5, "delivered": 3, "filtered": 1, "dead_lettered": 1, "retried": 2}


def test_a_later_task_adds_its_counts_and_keeps_the_first_checkpoint() -> None:
    first = _summary(batches=2, records=Counts(5, 5), steps={"plan": 0.5}, errors={"Io": 1}, spark_started=True)
    later = _summary(batches=1, records=Counts(2, 1, 1), steps={"plan": 0.25}, errors={"Io": 2}, route=["done"])
    later.checkpoint = {"t": {"before": 10, "after": 30}}

    merged = first.merge(later)

    assert merged.batches == 3
    assert merged.records == Counts(7, 6, 1)
    assert merged.checkpoint == {"t": {"before": 0, "after": 30}}
    assert merged.steps == {"plan": 0.75}
    assert merged.errors == {"Io": 3}
    assert merged.route == ["done"]
    assert merged.spark_started


def test_a_later_task_s_epoch_stands() -> None:
    assert _summary().merge(_summary(epoch=4)).epoch == 4


def test_the_line_gives_the_known_lag_and_names_the_partitions_that_have_not_begun() -> None:
    lags: tuple[dict[str, int | None], ...] = ({"t": 1200}, {"t": None}, {"t": 1200, "u": None}, {})
    lines = [_summary(lag=lag, route=["done"]).line().partition("; lag ")[2] for lag in lags]
    assert lines == ["1,200; done", "not begun; done", "1,200 (not begun: u); done", "0; done"]


def test_what_waited_before_and_waits_no_more_is_gone() -> None:
    merged = _summary(batches_by_state={"planned": 2}, lag={"t": 7}).merge(_summary(lag={"t": 0}))
    assert (merged.batches_by_state, merged.lag) == ({}, {"t": 0})


def test_batches_sent_at_most_once_without_a_receipt_add_up() -> None:
    merged = _summary(batches_by_state={"sent": 2, "planned": 3}).merge(_summary(batches_by_state={"sent": 1}))
    assert merged.batches_by_state == {"sent": 3}
