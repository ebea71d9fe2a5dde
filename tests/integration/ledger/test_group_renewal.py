"""One statement renews several leases, with the same decisions as for a single lease, and waits for no locked row."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.types import Lease, Renewal
from tests.integration.ledger.ledger_driver import TTL

TABLES = 50

_numbers = itertools.count()


@pytest.fixture
def statements(ledger: Ledger) -> Iterator[list[str]]:
    """Every statement that the ledger sends."""
    sent: list[str] = []

    def note(*args: object) -> None:
        sent.append(str(args[2]))

    sa.event.listen(ledger._engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(ledger._engine, "before_cursor_execute", note)


def expiry(ledger: Ledger, pipeline: str) -> datetime:
    """Return the time at which a lease expires, as the ledger stores it."""
    query = sa.select(tables.lease.c.expires_at).where(tables.lease.c.pipeline == pipeline)
    with ledger._engine.connect() as connection:
        found: datetime = connection.execute(query).scalar_one()
    return found


def test_the_leases_of_fifty_tables_take_one_statement(ledger: Ledger, statements: list[str]) -> None:
    leases = [ledger.acquire(f"shop.public.t{number}", "task", TTL) for number in range(TABLES)]
    statements.clear()

    assert ledger.renew_all(leases) == Renewal()

    assert len([text for text in statements if not text.startswith("BEGIN")]) == 1


def test_each_lease_is_extended_by_its_own_ttl(ledger: Ledger) -> None:
    ttls = {"a": timedelta(milliseconds=1500), "b": timedelta(minutes=5), "c": timedelta(days=10)}
    leases = [ledger.acquire(name, "task", ttl) for name, ttl in ttls.items()]
    other = ledger.acquire("other", "task", TTL)
    time.sleep(0.05)
    before = datetime.now(UTC)

    ledger.renew_all(leases)

    for name, ttl in ttls.items():
        assert timedelta(milliseconds=-1) <= expiry(ledger, name) - ttl - before < timedelta(seconds=10)
    assert expiry(ledger, "other") == other.expires_at


def test_a_lost_lease_is_told_alone_and_the_others_are_renewed(ledger: Ledger) -> None:
    leases = {name: ledger.acquire(name, "task", timedelta(milliseconds=20)) for name in ("a", "b", "c", "d")}
    unknown = Lease("never ran", "task", 1, TTL, leases["a"].expires_at)
    time.sleep(0.05)  # all have expired, and one is taken over
    ledger.acquire("b", "another task", TTL)
    ledger.release(leases["c"])

    renewal = ledger.renew_all([*leases.values(), unknown])

    assert not renewal.locked
    assert renewal.lost.keys() == {leases["b"], leases["c"], unknown}
    assert "b: this run holds epoch 1, but epoch 2 was granted to another task" in str(renewal.lost[leases["b"]])
    assert "it was released" in str(renewal.lost[leases["c"]])
    assert "replaced or restored" in str(renewal.lost[unknown])
    assert ledger.renew_all([leases["a"], leases["d"]]) == Renewal()


def test_a_renewed_lease_does_not_expire(ledger: Ledger) -> None:
    leases = [ledger.acquire(name, "a", timedelta(milliseconds=400)) for name in ("orders", "invoices")]
    for _ in range(4):
        time.sleep(0.15)
        ledger.renew_all(leases)
    for lease in leases:
        with pytest.raises(LeaseBusyError):
            ledger.acquire(lease.pipeline, "b", TTL)


@pytest.mark.parametrize("ledger_url", ["postgresql"], indirect=True)  # a command of SQLite locks the whole ledger
def test_a_command_in_progress_delays_the_renewal_of_its_own_lease_alone(ledger: Ledger) -> None:
    leases = [ledger.acquire(name, "task", TTL) for name in ("a", "b", "c")]
    stored = expiry(ledger, "b")
    with ledger._engine.begin() as connection:
        lease_store.check(connection, "b", 1, "task")
        started = time.monotonic()

        renewal = ledger.renew_all(leases)

        assert time.monotonic() - started < 5
        assert renewal == Renewal(locked=frozenset({leases[1]}))
        assert expiry(ledger, "b") == stored
    assert ledger.renew_all(leases) == Renewal()
    assert expiry(ledger, "b") > stored


@pytest.mark.parametrize("ledger_url", ["postgresql"], indirect=True)  # a command of SQLite locks the whole ledger
def test_a_takeover_in_progress_is_told_once_it_is_committed(ledger: Ledger) -> None:
    leases = [ledger.acquire(name, "task", TTL) for name in ("a", "b")]
    with ledger._engine.begin() as connection:
        lease_store.acquire(connection, "b", "another", TTL, 0, lambda _: False, force=True)
        assert ledger.renew_all(leases) == Renewal(locked=frozenset({leases[1]}))
    assert ledger.renew_all(leases).lost.keys() == {leases[1]}


def test_no_lease_at_all(ledger: Ledger) -> None:
    assert ledger.renew_all([]) == Renewal()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["held", "expired", "acquired anew", "taken over", "released", "unknown"]),
            st.sampled_from(["own", "other owner", "older epoch", "newer epoch"]),
        ),
        max_size=8,
    )
)
def test_each_lease_is_decided_as_if_it_were_alone(ledger: Ledger, cases: list[tuple[str, str]]) -> None:
    leases = [_lease(ledger, f"p{next(_numbers)}", state, change) for state, change in cases]

    together = ledger.renew_all(leases)

    assert not together.locked
    for lease in leases:
        if lease in together.lost:
            with pytest.raises(StaleEpochError) as alone:
                ledger.renew(lease)
            assert str(together.lost[lease]) == str(alone.value)
        else:
            ledger.renew(lease)
            assert expiry(ledger, lease.pipeline) > datetime.now(UTC) + TTL - timedelta(seconds=10)


def _lease(ledger: Ledger, pipeline: str, state: str, change: str) -> Lease:
    """Return a lease that a run believes to hold, after its row in the ledger has been brought into a state.

    :param state: what became of the lease
    :param change: in which way the run's lease differs from the one that it was granted
    """
    lease = Lease(pipeline, "task", 1, TTL, datetime.now(UTC))
    if state != "unknown":
        lease = ledger.acquire(pipeline, "task", TTL)
    if state == "expired":
        past = datetime.now(UTC) - timedelta(minutes=1)
        with ledger._engine.begin() as connection:
            update = tables.lease.update().where(tables.lease.c.pipeline == pipeline)
            connection.execute(update.values(expires_at=past))
    elif state == "acquired anew":
        ledger.acquire(pipeline, "task", TTL)
    elif state == "taken over":
        ledger.acquire(pipeline, "another", TTL, force=True)
    elif state == "released":
        ledger.release(lease)
    owner = "another" if change == "other owner" else lease.owner
    epoch = lease.epoch + {"older epoch": -1, "newer epoch": 1}.get(change, 0)
    return Lease(pipeline, owner, epoch, lease.ttl, lease.expires_at)
