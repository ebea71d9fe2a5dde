"""The checker of traces accepts what the ledger does, and rejects what the core would not allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.formal.traces import complaints, recording
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered, failed


@pytest.fixture
def trace(tmp_path: Path, sqlite_ledger: Ledger) -> Path:
    """Two batches planned and begun, one delivered, one failed and begun again."""
    file = tmp_path / "trace.jsonl"
    with recording(file):
        driver = LedgerDriver(sqlite_ledger).start("t")
        first, second = driver.send(10, 20)
        driver.settle(delivered(first), failed(second))
    return file


def test_what_the_ledger_does_is_allowed(trace: Path) -> None:
    kinds = [event["kind"] for line in _lines(trace) for event in line["events"]]

    assert kinds == ["planned", "planned", "begun", "begun", "acked", "failed", "checkpoint"]
    assert complaints(trace) == []


def _without(kind: str) -> Callable[[Any], None]:
    def change(line: Any) -> None:
        line["events"] = [event for event in line["events"] if event["kind"] != kind]

    return change


def _further(line: Any) -> None:
    for event in line["events"]:
        if event["kind"] == "checkpoint":
            event["detail"]["after"] = 20


def _stored_as_delivered(line: Any) -> None:
    for batch in line["after"]["batches"]:
        batch[3] = "delivered"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without("planned"), "begun of 0 is not allowed"),
        (_without("begun"), "acked of 0 is not allowed"),
        (_without("acked"), "checkpoint of None is not allowed"),
        (_without("checkpoint"), "the events lead to"),
        (_further, "the core moves it to 10"),
        (_stored_as_delivered, "the events lead to"),
    ],
)
def test_what_the_core_does_not_allow_is_found(trace: Path, change: Callable[[Any], None], says: str) -> None:
    lines = _lines(trace)
    whole = {
        "before": lines[0]["before"],
        "events": [event for line in lines for event in line["events"]],
        "after": lines[-1]["after"],
    }
    change(whole)
    trace.write_text(json.dumps(whole) + "\n")

    assert [complaint for complaint in complaints(trace) if says in complaint], complaints(trace)


def _lines(trace: Path) -> list[Any]:
    return [json.loads(line) for line in trace.read_text().splitlines()]
