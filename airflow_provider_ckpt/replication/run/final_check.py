"""Check the sink at the end of a run: everything that the run delivered must still be there.

A sink may fail over or be restored while a run works. At its end, the run also stores a snapshot of the target in the
sink. The next run compares it with the target, to find out whether rows were lost since, for example by a truncation.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import SinkWithTargetSnapshot, unwrapped
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState
from airflow_provider_ckpt.core.errors import SinkChangedError
from airflow_provider_ckpt.replication.run import refuse_changed_sink

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.ledger.types import Lease
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)

_SECONDS = 5.0


def confirm(setup: PipelineContext, lease: Lease, sink: Sink) -> None:
    """Check that the sink still has everything that this run delivered, and store a snapshot for the next run.

    If a commit of this run created the target, the target's identity is stored in the ledger.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param lease: the run's lease
    :param sink: the pipeline's sink
    :raises SinkChangedError: if the sink has lost records that were delivered
    """
    known, found = refuse_changed_sink.refuse_changed(setup, sink, sent=True)
    if isinstance(opened := unwrapped(sink), SinkWithTargetSnapshot):
        opened.store_target_snapshot(lease.epoch)
    # Only commands under the lease change what is known, so that it is not read again.
    if known.target is None and found.target is not None:  # created by this run's first commit
        setup.ledger.store_sink_state(lease, ExpectedSinkState(lease.epoch, found.target, found.location))


def confirm_after_failure(setup: PipelineContext, lease: Lease, seconds: float = _SECONDS) -> None:
    """Check the sink as :func:`confirm` does after a run has failed; log problems and raise nothing.

    Errors of the check must not hide the error of the run. The check has a thread and a connection of its own, so that
    a sink which does not answer delays the end of the run by ``seconds`` at most.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param lease: the run's lease
    :param seconds: longest time to wait
    """
    thread = threading.Thread(target=_confirm, args=(setup, lease), name="ckpt-final-check", daemon=True)
    with suppress(RuntimeError):  # no more threads can be started
        thread.start()
        thread.join(seconds)
    if thread.is_alive():
        log.warning(
            "The sink of %s did not answer a check within %g s after the run had failed; the next run checks it",
            lease.pipeline,
            seconds,
        )


def _confirm(setup: PipelineContext, lease: Lease) -> None:
    """Open the sink anew, check it as :func:`confirm` does, and log errors instead of raising them.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param lease: the run's lease
    """
    try:
        sink = setup.open_sink()
        try:
            confirm(setup, lease, sink)
        finally:
            sink.close()
    except SinkChangedError as error:
        log.error("%s", error)
    except Exception as error:  # noqa: BLE001  # the thread's boundary; the next run compares the sink again
        log.warning(
            "The sink of %s could not be checked after the run had failed; the next run checks it: %s",
            lease.pipeline,
            error,
        )
