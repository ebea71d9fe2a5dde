"""Renew a lease in the background, three times within its TTL, while a run works, and detect its loss."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import LedgerUnavailableError, StaleEpochError

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease

log = logging.getLogger(__name__)


def renewal_interval(ttl: timedelta) -> float:
    """Return the seconds between two renewals of a lease: a third of its TTL, so that one renewal may fail.

    :param ttl: TTL of the lease
    """
    return ttl.total_seconds() / 3


class LeaseRenewal:
    """Thread that renews a lease at the interval of :func:`renewal_interval`.

    An unreachable ledger only delays the renewal: after expiry the run still holds the lease until another owner takes
    it.

    :param ledger: the ledger
    :param lease: the lease
    """

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self._ledger = ledger
        self._lease = lease
        self._ended = threading.Event()
        self._error: StaleEpochError | None = None
        self._thread = threading.Thread(target=self._run, name=f"ckpt-lease-{lease.pipeline}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise an error if another run has taken over.

        :raises StaleEpochError: naming both epochs
        """
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(renewal_interval(self._lease.ttl)):
            try:
                self._ledger.renew(self._lease)
            except StaleEpochError as error:
                self._error = error
                return
            except LedgerUnavailableError as error:
                log.warning("The lease of %s could not be renewed, trying again: %s", self._lease.pipeline, error)
