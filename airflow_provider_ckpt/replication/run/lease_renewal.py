"""Renew the leases of a process in the background, three times within their TTL, and detect that one was lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import StaleEpochError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease

log = logging.getLogger(__name__)

_LOCKED_SHARE = 0.1
"""Part of the renewal interval after which a renewal is tried again if another command had locked the lease's row."""


def renewal_interval(ttl: timedelta) -> float:
    """Return the seconds between two renewals of a lease: a third of its TTL, so that one renewal may fail.

    :param ttl: TTL of the lease
    """
    return ttl.total_seconds() / 3


class LeaseRenewal:
    """Renewal of one lease by the thread of a :class:`LeaseRenewals`.

    :param renewals: the thread that renews the lease
    :param lease: the lease, also an attribute
    :ivar interval: seconds between two renewals
    :ivar due: time of the next renewal, in seconds of the monotonic clock
    :ivar error: error of the renewal that found the lease lost; None as long as the lease is held
    """

    def __init__(self, renewals: LeaseRenewals, lease: Lease) -> None:
        self._renewals = renewals
        self.lease = lease
        self.interval = renewal_interval(lease.ttl)
        self.due = time.monotonic() + self.interval
        self.error: StaleEpochError | None = None

    def check(self) -> None:
        """Raise an error if a renewal has found that another run has taken over the lease.

        :raises StaleEpochError: if the lease was lost; the error names both epochs
        """
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Stop renewing the lease, without releasing it; return after a renewal that is in progress has ended."""
        self._renewals.remove(self)


class LeaseRenewals:
    """Thread that renews the leases of the runs in this process together, with one SQL statement each time.

    A lease is renewed at the interval of :func:`renewal_interval`, or earlier if other leases are due. If a lease was
    taken over, only the run of this lease gets the error. If the ledger cannot be reached, the renewals are tried again
    later: a run still holds an expired lease until another owner takes it over.

    :param ledger: the ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = threading.Condition()
        self._held: list[LeaseRenewal] = []
        self._in_progress: Sequence[LeaseRenewal] = ()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> LeaseRenewal:
        """Begin to renew a lease, and return an object by which the run finds a lost lease and ends the renewal.

        :param lease: the lease
        """
        renewal = LeaseRenewal(self, lease)
        with self._changed:
            self._held.append(renewal)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ckpt-leases", daemon=True)
                self._thread.start()
        return renewal

    def remove(self, renewal: LeaseRenewal) -> None:
        """Stop renewing a lease; return after an SQL statement in progress that renews this lease has ended.

        The thread ends when no lease is left.

        :param renewal: the lease's renewal
        """
        with self._changed:
            if renewal in self._held:
                self._held.remove(renewal)
            self._changed.notify_all()
            while renewal in self._in_progress:
                self._changed.wait()

    def _run(self) -> None:
        """Renew leases whenever they are due, until no lease is left; the thread executes this method."""
        while due := self._wait_until_due():
            try:
                self._renew(due)
            finally:
                with self._changed:
                    self._in_progress = ()
                    self._changed.notify_all()

    def _wait_until_due(self) -> Sequence[LeaseRenewal]:
        """Wait until a lease is due, and return the renewals to execute together; empty if no lease is left.

        As soon as one lease is due, all leases that will be due within half of their interval are renewed with it. So
        leases that were acquired at different times are renewed together from their second renewal on.
        """
        with self._changed:
            while self._held:
                now = time.monotonic()
                left = min(renewal.due for renewal in self._held) - now
                if left <= 0:
                    self._in_progress = [found for found in self._held if found.due <= now + found.interval / 2]
                    return self._in_progress
                self._changed.wait(left)
            self._thread = None
            return ()

    def _renew(self, due: Sequence[LeaseRenewal]) -> None:
        """Renew leases, and store the error of each that was lost; an error of the ledger only delays the renewals.

        :param due: renewals of the leases
        """
        try:
            result = self._ledger.renew_all([renewal.lease for renewal in due])
        except Exception as error:  # noqa: BLE001  # thread boundary: the runs go on, and renewal is tried again
            names = ", ".join(sorted(renewal.lease.pipeline for renewal in due))
            log.warning("The leases of %s could not be renewed, trying again: %s", names, error)
            result = None
        now = time.monotonic()
        with self._changed:
            for renewal in due:
                locked = result is not None and renewal.lease in result.locked
                renewal.due = now + renewal.interval * (_LOCKED_SHARE if locked else 1)
                renewal.error = None if result is None else result.lost.get(renewal.lease)
                if renewal.error is not None and renewal in self._held:
                    self._held.remove(renewal)
