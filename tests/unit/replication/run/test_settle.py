"""A settlement is repeated while the ledger does not accept it, and finally fails with an error of its own."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import (
    ErrorType,
    LedgerUnavailableError,
    OffsetCommitError,
    SinkError,
    StaleEpochError,
)
from airflow_provider_ckpt.ledger.types import Settlement
from airflow_provider_ckpt.replication.run.run import Run
from airflow_provider_ckpt.replication.run.settle import WaveSettlement

BUSY = LedgerUnavailableError("the ledger is locked.", recoverable=True)


class Stub:
    """A run whose ledger fails as often as it is told to."""

    def __init__(self, *errors: Exception, sink: str = "postgres", **strategy: Any) -> None:
        self.errors = list(errors)
        self.calls: list[dict[str, Any]] = []
        self.looks = 0
        target = {"connection": "c", "table": "t"} if sink == "postgres" else {"path": "/t"}
        self.pipeline = build(
            {
                "name": "orders",
                "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
                "sink": {"type": sink, **target},
                "commit_strategy": {"commit_timeout_ms": 250, **strategy},
            }
        )
        self.ledger = SimpleNamespace(settle=self._settle, partitions=self._partitions)
        self.lease = self.window = None
        self.failures = 0
        self.metrics = SimpleNamespace(failed=self._failed)

    def check(self) -> None:
        """The lease is held."""

    def _failed(self, commits: int) -> None:
        self.failures += commits

    def _settle(self, *_: Any, **given: Any) -> Settlement:
        self.calls.append(given)
        if self.errors:
            raise self.errors.pop(0)
        return Settlement([], {}, None, None, {})

    def _partitions(self, _: str) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return {}

    def receipts(self, _: Any) -> Any:
        self.looks += 1
        raise SinkError("unreachable for a moment")


def settlements(run: Stub) -> WaveSettlement:
    return WaveSettlement(cast("Run", run), random_deviation=lambda: 0.0)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which takes time."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def test_a_settlement_is_tried_again_with_the_policys_delays(pauses: list[float]) -> None:
    run = Stub(BUSY, BUSY)

    settlements(run).settle([])

    assert pauses == [0.1, 0.2]
    assert [call["patience"] for call in run.calls] == [timedelta(milliseconds=250)] * 3
    assert run.failures == 2


def test_one_that_is_never_stored_is_an_error_of_committing() -> None:
    with pytest.raises(OffsetCommitError, match="could not be settled in 3 attempts: the ledger is locked") as caught:
        settlements(Stub(BUSY, BUSY, BUSY)).settle([])

    assert caught.value.info.type is ErrorType.OFFSET_COMMIT


@pytest.mark.parametrize("error", [LedgerUnavailableError("at another revision"), StaleEpochError("epoch 4 holds it")])
def test_what_time_does_not_mend_is_not_tried_again(error: Exception) -> None:
    run = Stub(error)

    with pytest.raises(type(error)):
        settlements(run).settle([])

    assert len(run.calls) == 1


def test_a_sink_that_cannot_be_asked_in_between_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    run = Stub()
    watching = settlements(run)
    watching.begin_wave([BatchKey(1, "p", 0)])

    for _ in range(5):
        watching.settle_if_due()

    assert run.looks > 0
    assert run.calls == []


def test_nobody_looks_for_receipts_where_a_wave_is_committed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    run = Stub(sink="delta")
    watching = settlements(run)
    watching.begin_wave([BatchKey(1, "p", 0)])

    for _ in range(5):
        watching.settle_if_due()

    assert run.looks == 0


def test_a_ledger_that_cannot_be_read_during_a_look_only_delays_it() -> None:
    run = Stub(BUSY)
    looking = settlements(run)
    looking.begin_wave([BatchKey(1, "t", 0)])
    looking._next_check_at = 0.0

    looking.settle_if_due()

    assert (run.errors, run.looks) == ([], 0)
