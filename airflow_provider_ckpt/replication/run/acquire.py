"""Start a run: take the lease, fence the sink, and reconcile with its receipts before any attempt begins.

The order is fixed by semantics, section 4; no step may be left out or swapped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState
from airflow_provider_ckpt.core.errors import CkptError, FencedError, LeaseBusyError, LedgerUnavailableError
from airflow_provider_ckpt.replication.metric_names import Metric
from airflow_provider_ckpt.replication.own_output import refuse_own_output
from airflow_provider_ckpt.replication.run import refuse_changed_sink
from airflow_provider_ckpt.replication.run.busy_lease import wait_for_lease
from airflow_provider_ckpt.replication.run.first_start import first_starts, refuse_unsuitable_columns, start_partitions
from airflow_provider_ckpt.replication.run.reconcile import reconcile
from airflow_provider_ckpt.replication.run.refuse_other_ledger import refuse_other_ledgers
from airflow_provider_ckpt.replication.run.run import Run
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import Lease

log = logging.getLogger(__name__)


def acquire(setup: PipelineContext, *, force: bool = False, accepting: bool = False) -> Run:
    """Start a run: take the lease, fence the sink, reconcile with its receipts, and apply stored actions.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param force: whether to take the lease from its holder (a user's force stop)
    :param accepting: whether a user is about to accept a changed sink; then the sink must have changed, and stored
        actions are left to the next run
    :raises LeaseBusyError: if another run holds the lease and ``lease.on_busy`` says to fail, or the wait for it has
        timed out
    :raises ConfigError: if the sink holds another ledger's receipts for the pipeline
    :raises LedgerStateError: if the sink to accept is as this ledger left it
    :raises SinkChangedError: if the sink lost commits, was recreated, or is another one than this ledger left
    :raises SourceError: if the source cannot be reached or is not the one the ledger knows
    :raises SinkError: if the sink cannot be reached
    """
    try:
        try:
            opened, lease = _open_and_lease(setup, force=force)
        except CkptError as error:
            _record_refusal(setup, error)
            raise
        run = Run(setup, lease, opened)
        try:
            _fence_and_reconcile(run, accepting=accepting)
        except BaseException as error:
            run.close()
            run.release_after_error(error)
            raise
    except CkptError as error:
        error.pipeline = error.pipeline or setup.pipeline.name
        if isinstance(error, FencedError):
            setup.meter.count(Metric.FENCE_REJECTIONS)
        raise
    return run


def _open_and_lease(setup: PipelineContext, *, force: bool) -> tuple[OpenConnectors, Lease]:
    """Open and check source and sink, and take the lease with an epoch above the sink's fence.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param force: whether to take the lease from its holder
    :return: source and sink, open, and the lease
    :raises ConfigError: if the sink has receipts of another ledger
    :raises LeaseBusyError: if another run holds the lease, and the pipeline does not wait or the wait has timed out
    """
    opened = OpenConnectors(setup)
    try:
        opened.check()
        claims = opened.sink.claims()
        refuse_other_ledgers(setup, claims)
        return opened, wait_for_lease(setup, claims.epoch, force=force)
    except BaseException:
        opened.close()
        raise


def _record_refusal(setup: PipelineContext, error: CkptError) -> None:
    """Record in the ledger why a run was refused before it held the lease, unless another run holds the lease.

    :param setup: the pipeline with its ledger and lease owner
    :param error: the error with which the run was refused
    """
    if isinstance(error, LeaseBusyError):
        return
    try:
        setup.ledger.record_refusal(setup.pipeline.name, setup.owner, str(error))
    except LedgerUnavailableError as unavailable:
        log.warning("The ledger could not record that %s was refused: %s", setup.pipeline.name, unavailable)


def _fence_and_reconcile(run: Run, *, accepting: bool) -> None:
    """Check and fence the sink, settle the ledger's batches by the sink's receipts, and apply stored actions.

    :param run: the run, which holds the lease
    :param accepting: whether a user is about to accept a changed sink, and stored actions are left to the next run; if
        False, a changed sink is refused
    """
    state = None if accepting else refuse_changed_sink.refuse_changed(run.setup, run.sink)[1]
    unfinished_acceptance = refuse_changed_sink.acceptance_evidence(run.setup, run.sink) if accepting else None
    known = run.ledger.partitions(run.pipeline.name)
    first = first_starts(run, known)
    if any(first.values()):
        refuse_unsuitable_columns(run)
    run.sink.create_bookkeeping()  # after all refusals, so that a refused run leaves nothing in the sink
    if unfinished_acceptance is not None:
        run.ledger.store_unaccepted(run.lease, unfinished_acceptance)  # the fence destroys the evidence
    with run.step("fence"):
        run.sink.fence(run.epoch)
    if state is not None and state.target is None:
        refuse_own_output(run.pipeline, run.source, run.sink)  # the fence may have created the target
    if state is not None:
        run.ledger.store_sink_state(run.lease, ExpectedSinkState(run.epoch, state.target, state.location))
        run.ledger.declare(run.lease, run.pipeline.document())
    reconcile(run, run.record_checkpoints(start_partitions(run, first, known)))
    if not accepting:
        run.apply_stored_actions(behind_fence=True)
