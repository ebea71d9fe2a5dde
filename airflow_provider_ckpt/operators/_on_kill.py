"""Clean up after a task that is killed, as far as 2 s allow: cancel its open attempts and release its lease.

Correctness does not depend on the cleanup. Without it the lease expires, and the next run settles the batches by their
receipts.
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

_TIMEOUT_SECONDS = 2.0


def cancel_and_release(ledger: Ledger, lease: Lease, seconds: float = _TIMEOUT_SECONDS) -> None:
    """Cancel the open attempts of a lease and release the lease, if the ledger answers in time; raise no error.

    This uses a thread and a database connection of its own, since it is called from a signal handler, which may have
    interrupted a transaction.

    :param ledger: the open ledger
    :param lease: the lease that the killed task holds
    :param seconds: longest time to wait
    """
    thread = threading.Thread(target=_cancel_and_release, args=(ledger, lease), name="ckpt-last-will", daemon=True)
    with suppress(RuntimeError):  # no thread can be started
        thread.start()
        thread.join(seconds)


def _cancel_and_release(ledger: Ledger, lease: Lease) -> None:
    """Cancel the open attempts of a lease in the ledger and release the lease; log the result or the error.

    :param ledger: the ledger, open
    :param lease: the lease that the killed task holds
    """
    try:
        cancelled = ledger.cancel(lease, now=utcnow())
        ledger.release(lease)
    except CkptError as error:
        log.warning(
            "Pipeline %s: the kill could not be recorded; the next run settles the open attempts: %s",
            lease.pipeline,
            error,
        )
    else:
        log.info(
            "Pipeline %s was killed: %d open attempts are cancelled, the lease is released",
            lease.pipeline,
            len(cancelled),
        )
