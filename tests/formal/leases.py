"""Check the lease's decisions for every possible state of a lease and every request."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.core import lease as decisions
from airflow_provider_ckpt.core import refuse_stale_epoch
from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.core.invariants import STALE_EPOCH, Violation
from airflow_provider_ckpt.core.lease import LeaseGrantReason, LeaseState
from tests.formal.coverage import Met
from tests.formal.pool import BrokenError
from tests.formal.questions import LATER, NOW

TTL = timedelta(seconds=60)
OWNER, OTHER = "the holder", "another"


class Leases:
    """Asks ``core/lease.py`` and ``core/refuse_stale_epoch.py``, and remembers what it was asked."""

    def __init__(self, met: Met) -> None:
        self._met = met
        self._checked: set[tuple[int, bool, int]] = set()
        self._next: dict[tuple[int, bool, int], int] = {}

    def next(self, epoch: int, held: bool, fence: int) -> int:
        """The epoch that the next acquisition gets, however it comes about.

        :param fence: the sink's; the new epoch is beyond it too
        """
        known = self._next.get((epoch, held, fence))
        if known is None:
            known = decisions.grant(_state(epoch, held), OTHER, now=LATER, ttl=TTL, at_least=fence)[0].epoch
            self._next[epoch, held, fence] = known
        return known

    def check(self, epoch: int, held: bool, fence: int) -> None:
        """Make sure who gets the lease and who may use it, once for each state of it.

        :raises BrokenError: if somebody who should not
        """
        if (epoch, held, fence) in self._checked:
            return
        self._checked.add((epoch, held, fence))
        state = _state(epoch, held)
        self._grants(state, fence)
        self._uses(state)

    def _grants(self, state: LeaseState, fence: int) -> None:
        ways = {
            LeaseGrantReason.OWN: (OWNER, NOW, False, False),
            LeaseGrantReason.EXPIRED: (OTHER, LATER, False, False),
            LeaseGrantReason.DEAD: (OTHER, NOW, True, False),
            LeaseGrantReason.FORCED: (OTHER, NOW, False, True),
        }
        for reason, (owner, now, dead, force) in ways.items():
            is_dead = _certainly_dead if dead else decisions.never_dead
            try:
                new, found = decisions.grant(
                    state, owner, now=now, ttl=TTL, at_least=fence, is_dead=is_dead, force=force
                )
            except LeaseBusyError:
                raise _broken(f"a lease is refused to whom it is due: {reason}") from None
            expected = reason if state.owner else LeaseGrantReason.FREE
            if found is not expected or new.epoch <= max(state.epoch, fence) or new.owner != owner:
                raise _broken(f"{found} instead of {expected}, epoch {new.epoch} after {state.epoch}, fence {fence}")
            if state.owner:
                self._met.reach(GRANTED[reason])
        if state.owner is None:
            return
        try:
            decisions.grant(state, OTHER, now=NOW, ttl=TTL)
        except LeaseBusyError:
            self._met.reach("a lease that is held is refused to others")
        else:
            raise _broken("a lease that is held was granted to another")

    def _uses(self, state: LeaseState) -> None:
        for epoch in range(1, state.epoch + 2):
            for owner in (OWNER, OTHER):
                allowed = epoch == state.epoch and owner == state.owner
                try:
                    refuse_stale_epoch.check_epoch(state, epoch, owner)
                    decisions.renew(state, epoch, owner, now=NOW)
                except StaleEpochError:
                    if allowed:
                        raise _broken(f"epoch {epoch} is refused to its own holder") from None
                    self._met.reach("a command of an older epoch is refused")
                else:
                    if not allowed:
                        raise _broken(f"epoch {epoch} of {owner} may write, but {state.owner} holds {state.epoch}")


GRANTED = {
    LeaseGrantReason.OWN: "a lease is granted to its own owner",
    LeaseGrantReason.EXPIRED: "a lease is granted after it expired",
    LeaseGrantReason.DEAD: "a lease is granted after its owner died",
    LeaseGrantReason.FORCED: "a lease is granted by force",
}


def _certainly_dead(_owner: str) -> bool:
    return True


def _state(epoch: int, held: bool) -> LeaseState:
    return LeaseState(OWNER if held else None, epoch, TTL, NOW + TTL)


def _broken(message: str) -> BrokenError:
    return BrokenError([Violation(STALE_EPOCH, "", message)])
