"""Ledger whose pipelines are in all states that the page shows, and dead letters in a sink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.dead_letter_files import DeadLetterFiles
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.core.schema_version import SchemaVersion, VersionColumn
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import BAD_DATA, LedgerDriver, delivered, failed

HOSTILE = "<script>alert(1)</script>\u202e'\""
"""Text that a page must show as text."""

BAD_ROW = ErrorInfo(ErrorType.SINK, f"value too long {HOSTILE}", sqlstate="22001")
NO_JSON = ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "not JSON")
DEAD_LETTERS: Sequence[DeadLetter] = (
    DeadLetter(113, None, b"\xff\x00\xfe not text", NO_JSON, {"topic": "orders"}),
    DeadLetter(
        111,
        HOSTILE.encode(),
        json.dumps({"id": 7, "name": HOSTILE}).encode(),
        BAD_ROW,
        {"topic": HOSTILE},
        ((HOSTILE, b"\x00\xff"), ("empty", None)),
    ),
    DeadLetter(112, None, b"<b>" + b"x" * 1_000_000, BAD_ROW, {"topic": "orders"}),
)
"""Binary, hostile, and of a megabyte; in the order of the dead letter index."""


def fill(url: str, directory: Path, *, is_hostile: bool = True) -> None:
    """Make the pipelines, with what happened to them in the last hours.

    - ``orders``, run by the DAG ``shop``: a held batch, two delivered ones behind it, dead letters; a column that was
      added at position 120
    - ``prices``, run by ``shop`` and ``store``
    - ``bare``, run by the command line six weeks ago
    - ``orphan``, run by a DAG that Airflow does not know
    - two tables of the database ``shop``, run by the DAG ``shop``: ``customers`` with a held batch, ``items`` done

    :param url: URL of a ledger that has the newest revision
    :param directory: directory of the sinks
    :param is_hostile: whether texts of ``orders`` hold markup and are long
    """
    with Ledger.open(url) as ledger:
        _orders(ledger, directory, HOSTILE if is_hostile else "ada", HOSTILE * 40_000 if is_hostile else "a full disk")
        for dag in ("shop", "store"):
            prices = _driver(ledger, of_task(dag, "manual__1", "prices", "replicate"), "prices")
            prices.plan(prices.partition().planned_end + 10)
            ledger.release(prices.lease)
        for owner, name in (("cli:host:1:2", "bare"), (of_task("gone", "manual__1", "orphan", "replicate"), "orphan")):
            other = _driver(ledger, owner, name, hours=1000 if name == "bare" else 0)
            other.settle(*(_delivered(other, batch) for batch in other.send(10)))
            ledger.release(other.lease)
        for table in ("customers", "items"):
            run = _driver(ledger, of_task("shop", "manual__1", "shop.tables", "replicate"), f"shop.public.{table}")
            (batch,) = run.send(10)
            run.settle(failed(batch, BAD_DATA) if table == "customers" else _delivered(run, batch))
            if table == "customers":
                run.action(ActionKind.HOLD, batch)
            ledger.release(run.lease)


def begin_refresh(ledger: Ledger, name: str = "countries") -> LedgerDriver:
    """A run of the DAG ``shop`` that has staged 20 of 50 positions of a refresh in generation 2, and sends 10 more.

    :param ledger: the ledger
    :param name: name of a pipeline that does not exist, whose first refresh is published
    """
    driver = LedgerDriver(ledger, of_task("shop", "manual__1", name, "replicate"), name)
    driver.now = datetime.now(UTC)
    driver.start("table")
    for end in (30, 50):
        extent = RefreshExtent(end, "snapshot", {})
        ledger.begin_refresh(driver.lease, "table", extent, now=driver.now, reason="each run refreshes")
        if end == 30:
            driver.settle(*(_delivered(driver, batch) for batch in driver.send(30, 31, name="table")))
            driver.wait(minutes=1)
    first, second, _ = driver.send(10, 20, 30, name="table")
    driver.settle(_delivered(driver, first), _delivered(driver, second))
    return driver


def hold_publication(driver: LedgerDriver, reason: str) -> None:
    """Stage the other positions of a refresh that :func:`begin_refresh` has begun, and hold its publication."""
    batches = driver.partition("table").batches.values()
    working = [batch for batch in batches if batch.state is BatchState.IN_FLIGHT]
    driver.settle(*(_delivered(driver, batch) for batch in (*working, *driver.send(50, name="table"))))
    (publication,) = driver.plan(51, name="table")
    driver.ledger.hold_publication(driver.lease, publication.key, now=driver.now, reason=reason)
    driver.ledger.release(driver.lease)


def _driver(ledger: Ledger, owner: str, pipeline: str = "orders", hours: float = 0) -> LedgerDriver:
    """A run that began some hours ago."""
    driver = LedgerDriver(ledger, owner, pipeline)
    driver.now = datetime.now(UTC)
    return driver.wait(hours=-hours).start("t")


def _delivered(driver: LedgerDriver, batch: Batch, **more: Any) -> Outcome:
    outcome = delivered(batch, **more)
    assert outcome.receipt is not None
    return replace(outcome, receipt=replace(outcome.receipt, at=driver.now))


def _orders(ledger: Ledger, directory: Path, user: str, reason: str) -> None:
    """Ten batches an hour ago and before; then one is held, the two behind it are delivered, with a new column."""
    orders = _driver(ledger, of_task("shop", "manual__1", "orders", "replicate"), hours=6)
    ledger.declare(orders.lease, _declaration(directory))
    for batch in orders.plan(*range(10, 110, 10)):
        orders.wait(minutes=30)
        orders.settle(*(_delivered(orders, sent) for sent in orders.begin([batch])))
    _record_versions(orders, user)
    held, *good = orders.send(120, 130, 140)
    _store(ledger, directory, good[0], orders.lease.epoch)
    types = {NO_JSON.type.value: 1, BAD_ROW.type.value: 2}
    orders.settle(_delivered(orders, good[0], dead=3, dead_letters=types), _delivered(orders, good[1]))
    orders.settle(failed(held, BAD_DATA))
    ledger.action("orders", Action(ActionKind.HOLD, (held.key,)), actor=f"airflow:{user}", reason=reason)
    ledger.apply_stored_actions(orders.lease, now=orders.now)
    ledger.release(orders.lease)


def _record_versions(driver: LedgerDriver, text: str) -> None:
    """Record a first version, and at position 120 one with a column more, whose name and decision hold a text."""
    known = (VersionColumn("id", 1, "bigint"), VersionColumn("name", 2, "text"))
    added = VersionColumn(f"note {text}", 3, "text")
    decision = [f"column note {text} (text) is new: the target gets it"]
    driver.ledger.record_schema_version(driver.lease, SchemaVersion(1, "t", 1, 0, known))
    driver.ledger.record_schema_version(driver.lease, SchemaVersion(2, "t", 1, 120, (*known, added), decision))


def _declaration(directory: Path) -> dict[str, Any]:
    document = {
        "name": "orders",
        "source": {"type": "files", "path": str(directory / "in")},
        "transform": {"decode": "json", "schema": "id bigint, name string"},
        "sink": {"type": "files", "path": str(directory / "out"), "format": "jsonl"},
    }
    build(document, "a test")
    return document


def _store(ledger: Ledger, directory: Path, batch: Batch, epoch: int) -> None:
    """Write the dead letters of a batch's newest attempt, as the sink does."""
    name = ledger.sink_id("orders")
    task = BatchTask(batch.key, batch.range, batch.attempts)
    DeadLetterFiles(LocalLocation(directory / "out"), name, "orders").write(
        task, SinkContext(name, "orders", epoch), DEAD_LETTERS
    )
