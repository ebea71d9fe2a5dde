"""What a killed task still records in the seconds that it has: its open attempts are cancelled, its lease is let go.

Nothing depends on it: without it the lease expires, and the next run finds out from the receipts all the same.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.replication.setup import utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease

log = logging.getLogger(__name__)

_SECONDS = 2.0


def let_go(ledger: Ledger, lease: Lease, seconds: float = _SECONDS) -> None:
    """Cancel the open attempts of ``lease`` and release it, if the ledger answers in time; raises nothing.

    In a thread and on a connection of its own: it is called from a signal handler, and what that interrupted may be in
    the middle of a transaction.

    :param seconds: how long to wait at most
    """
    thread = threading.Thread(target=_let_go, args=(ledger, lease), name="ckpt-last-will", daemon=True)
    with suppress(RuntimeError):  # the machine has no thread left
        thread.start()
        thread.join(seconds)


def _let_go(ledger: Ledger, lease: Lease) -> None:
    try:
        cancelled = ledger.cancel(lease, now=utcnow())
        ledger.release(lease)
    except CkptError as error:
        log.warning("That %s was killed could not be recorded, the next run finds out: %s", lease.pipeline, error)
    else:
        log.info("%s was killed: %d open attempts are cancelled, the lease is free", lease.pipeline, len(cancelled))
