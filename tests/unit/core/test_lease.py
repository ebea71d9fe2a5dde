"""Tests of the lease: its next owner, and the epoch that may still write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.core.lease import (
    TAKEOVERS,
    LeaseGrantReason,
    LeaseState,
    grant,
    never_dead,
    renew,
)
from airflow_provider_ckpt.core.refuse_stale_epoch import check_epoch
from tests.unit.core.machines import NOW

TTL = timedelta(seconds=60)
HELD = LeaseState("dag/run-1", 4, TTL, NOW + TTL)
FREE = replace(HELD, owner=None)
EXPIRED = replace(HELD, expires_at=NOW)


class TestGrant:
    def test_a_free_lease_goes_to_whoever_asks(self) -> None:
        granted, reason = grant(FREE, "dag/run-2", now=NOW, ttl=TTL)

        assert granted == LeaseState("dag/run-2", 5, TTL, NOW + TTL)
        assert reason is LeaseGrantReason.FREE

    def test_its_owner_gets_it_again_under_a_new_epoch(self) -> None:
        granted, reason = grant(HELD, "dag/run-1", now=NOW, ttl=TTL)

        assert (granted.epoch, reason) == (5, LeaseGrantReason.OWN)

    def test_it_expires_at_its_very_time_and_not_before(self) -> None:
        assert grant(EXPIRED, "dag/run-2", now=NOW, ttl=TTL)[1] is LeaseGrantReason.EXPIRED
        with pytest.raises(LeaseBusyError):
            grant(EXPIRED, "dag/run-2", now=NOW - timedelta(microseconds=1), ttl=TTL)

    def test_a_dead_owners_lease_is_free_at_once(self) -> None:
        granted, reason = grant(HELD, "dag/run-2", now=NOW, ttl=TTL, is_dead=lambda owner: owner == "dag/run-1")

        assert (granted.owner, reason) == ("dag/run-2", LeaseGrantReason.DEAD)

    def test_a_person_takes_it_by_force(self) -> None:
        assert grant(HELD, "a person", now=NOW, ttl=TTL, force=True)[1] is LeaseGrantReason.FORCED

    def test_force_is_not_called_force_where_none_is_needed(self) -> None:
        assert grant(FREE, "a person", now=NOW, ttl=TTL, force=True)[1] is LeaseGrantReason.FREE

    def test_otherwise_it_is_refused_with_who_holds_it_and_until_when(self) -> None:
        with pytest.raises(LeaseBusyError, match=r"dag/run-1, epoch 4, until 2026-01-01T00:01:00") as caught:
            grant(HELD, "dag/run-2", now=NOW, ttl=TTL)

        assert caught.value.hint

    @pytest.mark.parametrize(("fence", "epoch"), [(0, 5), (4, 5), (41, 42)])
    def test_the_new_epoch_is_beyond_the_ledgers_and_the_sinks(self, fence: int, epoch: int) -> None:
        assert grant(FREE, "dag/run-2", now=NOW, ttl=TTL, at_least=fence)[0].epoch == epoch

    def test_nobody_is_known_dead_unless_somebody_knows(self) -> None:
        assert not never_dead("dag/run-1")

    def test_only_taking_it_from_somebody_is_a_takeover(self) -> None:
        assert {LeaseGrantReason.EXPIRED, LeaseGrantReason.DEAD, LeaseGrantReason.FORCED} == TAKEOVERS


class TestCheck:
    def test_the_newest_epoch_of_its_owner_may_write(self) -> None:
        assert check_epoch(HELD, 4, "dag/run-1") == HELD

    def test_even_past_its_expiry_as_long_as_nobody_took_it(self) -> None:
        assert check_epoch(EXPIRED, 4, "dag/run-1") == EXPIRED

    def test_an_older_epoch_may_not_and_learns_who_has_the_newer(self) -> None:
        with pytest.raises(StaleEpochError, match=r"holds epoch 3, but epoch 4 was granted to dag/run-1"):
            check_epoch(HELD, 3, "dag/run-1")

    def test_an_older_epoch_whose_successor_has_ended_learns_that(self) -> None:
        with pytest.raises(StaleEpochError, match="epoch 4 was granted to a run that has ended"):
            check_epoch(FREE, 3, "dag/run-1")

    def test_another_owner_of_the_same_epoch_may_not(self) -> None:
        with pytest.raises(StaleEpochError, match=r"that epoch is dag/run-1's"):
            check_epoch(HELD, 4, "dag/run-2")

    def test_a_lease_that_was_released_is_gone(self) -> None:
        with pytest.raises(StaleEpochError, match=r"it was released \(epoch 4\)"):
            check_epoch(FREE, 4, "dag/run-1")

    @pytest.mark.parametrize("held", [HELD, None])
    def test_a_ledger_that_has_never_granted_the_epoch_was_restored_from_a_backup(
        self, held: LeaseState | None
    ) -> None:
        with pytest.raises(StaleEpochError, match="the ledger was replaced or restored"):
            check_epoch(held, 5, "dag/run-1")


class TestRenew:
    def test_it_lasts_another_ttl_from_now_even_if_it_had_expired(self) -> None:
        later = NOW + timedelta(hours=1)

        assert renew(HELD, 4, "dag/run-1", now=later) == replace(HELD, expires_at=later + TTL)

    def test_a_lease_that_somebody_took_is_not_renewed(self) -> None:
        with pytest.raises(StaleEpochError):
            renew(HELD, 3, "dag/run-1", now=NOW)
