"""The thread that renews the leases of a process: times, groups, and the notice to runs that lost their lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ckpt.core.errors import LedgerUnavailableError, StaleEpochError
from airflow_provider_ckpt.ledger.types import Lease, Renewal
from airflow_provider_ckpt.replication.run.lease_renewal import LeaseRenewal, LeaseRenewals, renewal_interval

TTL = timedelta(seconds=1.5)


class FakeLedger:
    """Ledger that only notes which leases are renewed together.

    :ivar rounds: sorted names of the leases of each statement
    :ivar lost: names of leases that were taken over
    :ivar locked: names of leases whose row a command has locked
    :ivar error: error of every statement; None if the ledger answers
    :ivar answers: event without which no statement ends
    """

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.lost: set[str] = set()
        self.locked: set[str] = set()
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def renew_all(self, leases: Collection[Lease]) -> Renewal:
        """Note the leases, and answer as the attributes say."""
        self.rounds.append(sorted(lease.pipeline for lease in leases))
        assert self.answers.wait(30)
        if self.error is not None:
            raise self.error
        lost = {lease: StaleEpochError(f"{lease.pipeline} is lost") for lease in leases if lease.pipeline in self.lost}
        return Renewal(lost, frozenset(lease for lease in leases if lease.pipeline in self.locked))


@pytest.fixture
def ledger() -> FakeLedger:
    return FakeLedger()


@pytest.fixture
def renewals(ledger: FakeLedger) -> Iterator[LeaseRenewals]:
    """The thread under test, which has no lease left at the end."""
    renewals = LeaseRenewals(ledger)  # type: ignore[arg-type]
    yield renewals
    ledger.answers.set()
    for renewal in list(renewals._held):
        renewal.stop()
    await_(lambda: renewals._thread is None)


def lease(name: str, ttl: timedelta = TTL) -> Lease:
    return Lease(name, "task", 1, ttl, datetime.now(UTC) + ttl)


def await_(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_lease_is_renewed_three_times_within_its_ttl() -> None:
    assert renewal_interval(timedelta(seconds=60)) == 20


def test_leases_that_were_acquired_at_different_times_are_renewed_together(
    ledger: FakeLedger, renewals: LeaseRenewals
) -> None:
    names = [f"t{number:02}" for number in range(50)]
    for name in names:
        renewals.add(lease(name))
        time.sleep(0.01)

    await_(lambda: ledger.rounds[-3:] == [names] * 3)


def test_a_lease_with_a_longer_ttl_is_not_renewed_at_the_pace_of_a_shorter_one(
    ledger: FakeLedger, renewals: LeaseRenewals
) -> None:
    renewals.add(lease("long", TTL * 100))
    renewals.add(lease("short"))
    await_(lambda: len(ledger.rounds) >= 3)

    assert ledger.rounds[:3] == [["short"]] * 3


def test_a_lost_lease_is_told_to_its_own_run_alone(ledger: FakeLedger, renewals: LeaseRenewals) -> None:
    held = {name: renewals.add(lease(name)) for name in ("a", "b", "c")}
    ledger.lost = {"b"}
    await_(lambda: len(ledger.rounds) >= 3)

    with pytest.raises(StaleEpochError, match="b is lost"):
        held["b"].check()
    held["a"].check()
    held["c"].check()
    assert ledger.rounds[0] == ["a", "b", "c"]
    assert ledger.rounds[2] == ["a", "c"]


def test_a_locked_lease_is_renewed_soon_and_alone(ledger: FakeLedger, renewals: LeaseRenewals) -> None:
    ttl = timedelta(seconds=3)
    ledger.locked = {"b"}
    added = time.monotonic()
    held = [renewals.add(lease(name, ttl)) for name in ("a", "b")]
    await_(lambda: len(ledger.rounds) >= 3)
    took = time.monotonic() - added

    assert ledger.rounds[:3] == [["a", "b"], ["b"], ["b"]]
    assert took < 2 * renewal_interval(ttl)
    for renewal in held:
        renewal.check()


@pytest.mark.parametrize("error", [LedgerUnavailableError("no answer"), ValueError("a defect")])
def test_a_ledger_that_fails_only_delays_the_renewals(
    ledger: FakeLedger, renewals: LeaseRenewals, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.error = error
    held = [renewals.add(lease(name)) for name in ("a", "b")]
    await_(lambda: len(ledger.rounds) >= 2)
    ledger.error = None
    await_(lambda: len(ledger.rounds) >= 4)

    for renewal in held:
        renewal.check()
    assert "The leases of a, b could not be renewed, trying again" in caplog.text


def test_a_renewal_that_was_stopped_is_no_longer_in_progress(ledger: FakeLedger, renewals: LeaseRenewals) -> None:
    held: dict[str, LeaseRenewal] = {name: renewals.add(lease(name)) for name in ("a", "b")}
    ledger.answers.clear()
    await_(lambda: bool(ledger.rounds))
    stopping = threading.Thread(target=held["a"].stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    late = renewals.add(lease("c"))
    late.stop()  # no part of what is in progress

    ledger.answers.set()
    stopping.join(20)

    assert not stopping.is_alive()
    before = len(ledger.rounds)
    await_(lambda: len(ledger.rounds) >= before + 2)
    assert ledger.rounds[before:] == [["b"]] * (len(ledger.rounds) - before)


def test_the_thread_ends_with_the_last_lease_and_begins_with_the_next(
    ledger: FakeLedger, renewals: LeaseRenewals
) -> None:
    renewals.add(lease("a")).stop()
    await_(lambda: renewals._thread is None)

    again = renewals.add(lease("b"))
    await_(lambda: bool(ledger.rounds))
    again.check()

    assert ledger.rounds[0] == ["b"]
