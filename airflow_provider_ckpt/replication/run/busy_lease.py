"""Take a lease that may be busy: while another run holds it, wait or fail, as ``lease.on_busy`` says."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.replication import process_lease_owner as owners
from airflow_provider_ckpt.replication.setup import PipelineContext

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import Lease

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.5
"""Seconds between two requests for a lease that another run holds."""


def wait_for_lease(setup: PipelineContext, sink_epoch: int, *, force: bool) -> Lease:
    """Take the lease; while another run holds it, wait or fail as the pipeline's ``lease`` says.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param sink_epoch: epoch of the sink's fence; the lease's epoch is higher
    :param force: whether to take the lease from its holder
    :raises LeaseBusyError: if another run holds the lease, and the pipeline does not wait or the wait has timed out
    """
    terms = setup.pipeline.lease
    deadline = time.monotonic() + terms.wait.total_seconds()
    logged = False
    while True:
        try:
            return setup.ledger.acquire(
                setup.pipeline.name, setup.owner, terms.ttl, at_least=sink_epoch, is_dead=owners.is_dead, force=force
            )
        except LeaseBusyError as error:
            if terms.on_busy == "fail" or time.monotonic() > deadline:
                raise
            if not logged:
                log.info("Waiting for the lease: %s", error)
                logged = True
                setup.turn.leave()
            setup.check()
            time.sleep(_PAUSE_SECONDS)
