"""A run's last look at its sink: is all there that was delivered, and with what does the next run compare.

A sink may fail over or be restored under a run. What only the sink itself sees, such as a truncation, it tells by a
witness; one of the run's end knows the rows that the run delivered, which the one of its beginning does not.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import SinkWithWitness
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState
from airflow_provider_ckpt.core.errors import SinkChangedError
from airflow_provider_ckpt.replication.run import refuse_sink

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.ledger.types import Lease
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)

_SECONDS = 5.0


def confirm(setup: PipelineContext, lease: Lease, sink: Sink) -> None:
    """Make sure that the sink is as this run left it, and keep a witness of it.

    :param setup: the pipeline's setup
    :param lease: the run's lease
    :param sink: the pipeline's sink
    :raises SinkChangedError: if the sink has lost meanwhile what was delivered
    """
    found = refuse_sink.refuse_changed(setup, sink, sent=True)
    if isinstance(sink, SinkWithWitness):
        sink.store_witness(lease.epoch)
    known = setup.ledger.expected_sink_state(setup.pipeline.name)
    if known.target is None and found.target is not None:  # made by this run's first commit
        setup.ledger.store_sink_state(lease, ExpectedSinkState(lease.epoch, found.target, found.location))


def confirm_after_failure(setup: PipelineContext, lease: Lease, seconds: float = _SECONDS) -> None:
    """Do the same for a run that has failed; raises nothing, since the run's own error must not be hidden.

    In a thread and on a connection of its own, so that a sink which does not answer delays the end only so long.

    :param setup: the pipeline's setup
    :param lease: the run's lease
    :param seconds: how long to wait at most
    """
    thread = threading.Thread(target=_confirm, args=(setup, lease), name="ckpt-final-check", daemon=True)
    with suppress(RuntimeError):  # the machine has no thread left
        thread.start()
        thread.join(seconds)
    if thread.is_alive():
        log.warning("The sink of %s did not answer within %g s after the run had failed", lease.pipeline, seconds)


def _confirm(setup: PipelineContext, lease: Lease) -> None:
    try:
        sink = setup.open_sink()
        try:
            confirm(setup, lease, sink)
        finally:
            sink.close()
    except SinkChangedError as error:
        log.error("%s", error)
    except Exception as error:  # noqa: BLE001  # the thread's boundary; the next run compares the sink anew
        log.warning("The sink of %s could not be looked at after the run had failed: %s", lease.pipeline, error)
