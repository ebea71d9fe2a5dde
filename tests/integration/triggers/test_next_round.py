"""The trigger of a deferred retry with a real ledger: it renews the lease while it waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.serialization.serialized_objects import BaseSerialization

from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.triggers import next_round
from airflow_provider_ckpt.triggers.next_round import CkptNextRoundTrigger
from tests.services.ledgers import new_ledger_file

_TTL = timedelta(seconds=2)


@pytest.fixture(autouse=True)
def shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """No real Airflow has to notice here that a worker has ended."""
    monkeypatch.setattr(next_round, "SHORTEST_WAIT", timedelta())


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The ledger that the default connection names."""
    url = new_ledger_file(tmp_path / "ledger.db")
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", f"ckpt://{tmp_path}/ledger.db")
    with Ledger.open(url) as opened:
        yield opened


def waiting(epoch: int, seconds: float) -> CkptNextRoundTrigger:
    """As Airflow makes it again in the triggerer from what it has stored."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    made = CkptNextRoundTrigger(
        pipeline="orders", epoch=epoch, owner="dag", ckpt_conn_id="ckpt_default", moment=moment, every=_TTL.seconds / 3
    )
    path, arguments = made.serialize()
    assert path == "airflow_provider_ckpt.triggers.next_round.CkptNextRoundTrigger"
    return CkptNextRoundTrigger(
        **BaseSerialization.deserialize(json.loads(json.dumps(BaseSerialization.serialize(arguments))))
    )


def fire(trigger: CkptNextRoundTrigger) -> dict[str, Any]:
    """Its one event."""

    async def first() -> dict[str, Any]:
        events = [event.payload async for event in trigger.run()]
        (payload,) = events
        return dict(payload)

    return asyncio.run(first())


def test_the_lease_outlives_its_time_to_live_while_the_trigger_waits(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "dag", _TTL)
    began = time.monotonic()
    refused = []

    async def rival() -> None:
        while True:
            await asyncio.sleep(0.2)
            try:
                ledger.acquire("orders", "another", _TTL)
            except LeaseBusyError:
                refused.append(time.monotonic() - began)

    async def wait() -> list[Any]:
        knocking = asyncio.create_task(rival())
        events = [event.payload async for event in waiting(lease.epoch, 2 * _TTL.total_seconds()).run()]
        knocking.cancel()
        with suppress(asyncio.CancelledError):
            await knocking
        return events

    (event,) = asyncio.run(wait())

    assert set(event) == {"due"}
    assert refused[-1] > 1.5 * _TTL.total_seconds()
    assert ledger.attach("orders", lease.epoch, "dag").epoch == lease.epoch


def test_a_takeover_ends_the_wait_at_once_and_is_told(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "dag", _TTL)
    ledger.release(lease)
    ledger.acquire("orders", "another", _TTL)

    event = fire(waiting(lease.epoch, 3600))

    assert "this run holds epoch 1, but epoch 2 was granted to another" in event["stale"]


def test_a_ledger_that_is_out_of_reach_only_delays_the_renewal(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lease = ledger.acquire("orders", "dag", _TTL)
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", f"ckpt://{tmp_path}/elsewhere.db")

    assert set(fire(waiting(lease.epoch, 0.5))) == {"due"}


@pytest.mark.parametrize("epoch", [1, 2])
def test_no_event_comes_before_airflow_has_noticed_that_the_worker_ended(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    monkeypatch.setattr(next_round, "SHORTEST_WAIT", timedelta(seconds=1.5))
    ledger.acquire("orders", "dag", _TTL)
    started = time.monotonic()

    event = fire(waiting(epoch, 0))

    assert time.monotonic() - started >= 1.5
    assert set(event) == {"due" if epoch == 1 else "stale"}
    if epoch == 1:
        with pytest.raises(LeaseBusyError):
            ledger.acquire("orders", "another", _TTL)


def test_what_airflow_stores_of_it_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", "ckpt://ckpt:s3cret@db/ledger")

    _, arguments = waiting(1, 1).serialize()

    assert "s3cret" not in str(arguments)
    assert set(arguments) == {"pipeline", "epoch", "owner", "ckpt_conn_id", "moment", "every"}


def test_a_task_that_a_person_ends_while_it_waits_lets_go_of_the_lease(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "dag", _TTL)

    asyncio.run(waiting(lease.epoch, 3600).on_kill())

    assert ledger.status("orders")["lease"]["owner"] is None
    assert ledger.acquire("orders", "another", _TTL).epoch == lease.epoch + 1


def test_a_task_that_is_ended_after_a_takeover_leaves_the_other_runs_lease_alone(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "dag", _TTL)
    ledger.release(lease)
    ledger.acquire("orders", "another", _TTL)

    asyncio.run(waiting(lease.epoch, 3600).on_kill())

    assert ledger.status("orders")["lease"]["owner"] == "another"
