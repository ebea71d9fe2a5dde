"""Accept a sink that runs have refused because it has changed, or move the pipeline to another sink.

An acceptance fences the sink and reads its receipts; then runs either send lost records again, or continue from the
checkpoint. A move reconciles with the previous sink; the next run then delivers to the sink that the pipeline declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink, find_lost_receipts
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import (
    ExpectedSinkState,
    SinkDifference,
    UnfinishedAcceptance,
    describe_differences,
    differences,
)
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication import process_lease_owner as owners
from airflow_provider_ckpt.replication.actions.resend_lost_records import (
    RECEIPTS_LOST,
    known_positions,
    make_resend,
    reconciled_partitions,
    refuse_beyond,
    refuse_other_losses,
)
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.refuse_changed_sink import (
    compare_states,
    nothing_to_accept,
    read_receipts,
    readable_receipts,
)
from airflow_provider_ckpt.replication.setup import OpenConnectors

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.ledger.types import ActionResult, PartitionRecord
    from airflow_provider_ckpt.replication.setup import PipelineContext


def make_acceptance(setup: PipelineContext, *, resend: bool, start: Mapping[str, int] | None = None) -> Action:
    """Return the action that accepts the sink as it is now; the function itself changes nothing.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param resend: whether runs send records without a receipt in the sink again; else they continue from the checkpoint
    :param start: by source partition, the first position to send again, for a sink whose receipts do not show which
        records are lost; None or empty to find the lost records by the receipts
    :raises LedgerStateError: if the sink is as the ledger left it, or ``start`` lies beyond a checkpoint
    :raises ConfigError: if the declared sink is another one than the pipeline delivered to, if ``resend`` is set
        although delivery is at_most_once, or if it is unknown which records have to be sent again
    """
    name, ledger = setup.pipeline.name, setup.ledger
    opened = OpenConnectors(setup)
    try:
        opened.check()
        known, found = compare_states(ledger, name, opened.sink, all_receipts=True)
        found_differences = differences(known, found)
        if not found_differences:
            raise nothing_to_accept(name)
        if SinkDifference.OTHER_LOCATION in found_differences:
            raise ConfigError(
                f"the declared sink is {found.location}, but this pipeline has delivered to {known.location} so far.",
                pipeline=name,
                hint=f'To deliver to the declared sink from now on, run `airflow ckpt move {name} --reason "..."`.',
            )
        before = known.unfinished_acceptance or UnfinishedAcceptance(frozenset(), "")
        description = before.description or describe_differences(known, found, found_differences)
        evidence = UnfinishedAcceptance(
            before.differences.union(found_differences), description, before.lost_batches | found.lost_batches
        )
        if not resend:
            lost = RECEIPTS_LOST & evidence.differences
            unclear = (
                _attempted_batches(reconciled_partitions(setup, readable_receipts(opened.sink, known_positions(setup))))
                if lost
                else ()
            )
            return Action(ActionKind.KEEP_SINK, batches=unclear)
        if setup.pipeline.delivery == "at_most_once":
            raise ConfigError(
                "--resend is not possible with delivery: at_most_once, which never sends anything again.",
                pipeline=name,
                hint="Use --keep; then `airflow ckpt rewind`, if records are to be read again nevertheless.",
            )
        if start:
            refuse_beyond(
                setup, reconciled_partitions(setup, readable_receipts(opened.sink, known_positions(setup))), start
            )
            return Action(ActionKind.RESEND_TO_SINK, positions=start)
        return make_resend(setup, opened.sink, evidence)
    finally:
        opened.close()


def make_move(setup: PipelineContext, *, unreachable: bool = False) -> Action:
    """Return the action after which the next run may deliver to another sink; the function itself changes nothing.

    :param setup: the pipeline as declared with the previous sink, with its ledger and connections
    :param unreachable: whether the previous sink can no longer be read, so that its receipts are unknown
    """
    partitions = setup.ledger.partitions(setup.pipeline.name)
    return Action(
        ActionKind.MOVE, batches=_attempted_batches(partitions) if unreachable else (), unreachable=unreachable
    )


def try_acceptance(setup: PipelineContext, action: Action, *, actor: str, reason: str | None) -> ActionResult:
    """Try an acceptance on the ledger after importing the sink's receipts, and roll it back; the sink is not fenced.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param action: action that :func:`make_acceptance` returned
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :return: the result that the action would have
    :raises LedgerStateError: if the state of the pipeline does not allow the action
    """
    opened = OpenConnectors(setup)
    try:
        new_receipts = readable_receipts(opened.sink, known_positions(setup))
        return setup.ledger.action(
            setup.pipeline.name, action, actor=actor, reason=reason, dry_run=True, receipts=new_receipts
        )
    finally:
        opened.close()


def apply_sink_change(
    setup: PipelineContext, action: Action, *, actor: str, reason: str | None, proposal: str | None = None
) -> ActionResult:
    """Apply an acceptance or a move under the lease, after fencing the sink; wait for the lease if a run holds it.

    A move for which ``action.unreachable`` is set neither fences the previous sink nor waits for the lease.

    :param setup: the pipeline with its ledger and connections; for a move, as declared with the previous sink
    :param action: action that :func:`make_acceptance` or :func:`make_move` returned
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    :raises LeaseBusyError: if a run still holds the lease after the pipeline's wait for it
    :raises LedgerStateError: if sink or pipeline have changed since the action was made; nothing was changed, and runs
        still refuse a changed sink
    """
    ledger = setup.ledger
    if action.unreachable:
        terms = setup.pipeline.lease
        lease = ledger.acquire(setup.pipeline.name, setup.owner, terms.ttl, is_dead=owners.is_dead)
        try:
            left = _left_behind(setup)
            return ledger.act_under_lease(lease, action, actor=actor, reason=reason, proposal=proposal, accepted=left)
        finally:
            ledger.release(lease)
    moving = action.kind is ActionKind.MOVE
    if not moving:
        try_acceptance(setup, action, actor=actor, reason=reason)
    with acquire(setup, accepting=not moving) as run:
        if action.from_receipts:
            refuse_other_losses(setup, run.sink, action)
        accepted = _left_behind(setup) if moving else _accepted(setup, run.sink)
        result = ledger.act_under_lease(
            run.lease, action, actor=actor, reason=reason, proposal=proposal, accepted=accepted
        )
        if not moving:
            claims = run.sink.claims()
            ledger.store_sink_state(run.lease, ExpectedSinkState(run.epoch, claims.target, run.sink.location))
        ledger.release(run.lease)
    return result


def _accepted(setup: PipelineContext, sink: Sink) -> AcceptedSink:
    """Return the receipts and the number of rows that the sink has lost, according to the ledger and the receipts.

    Later audits of the sink do not report these losses again. The number of rows is None for an upsert sink, or if the
    sink cannot count its rows.

    :param setup: the pipeline with its ledger
    :param sink: the sink that is accepted
    """
    recorded = setup.ledger.ledger_snapshot(setup.pipeline.name)
    receipts = read_receipts(sink, {})[0]
    rows = sink.target_rows(exact=True) if not setup.pipeline.sink.upserts else None
    missing = None if rows is None else sum(receipt.counts.delivered for receipt in receipts) - rows
    lost = find_lost_receipts(recorded.passed, recorded.batches.values(), receipts)
    return AcceptedSink(lost, missing)


def _left_behind(setup: PipelineContext) -> AcceptedSink:
    """Return all receipts of the ledger as accepted losses of the new sink, which has none of these receipts.

    :param setup: the pipeline with its ledger
    """
    recorded = setup.ledger.ledger_snapshot(setup.pipeline.name)
    return AcceptedSink(find_lost_receipts(recorded.passed, recorded.batches.values(), ()))


def _attempted_batches(records: Mapping[str, PartitionRecord]) -> tuple[BatchKey, ...]:
    """Return the batches that were attempted and have no verdict, except batches that are held already.

    If the sink's receipts are lost, it is unknown whether these batches were delivered.

    :param records: the ledger's partitions
    """
    open_ones = (batch for record in records.values() for batch in record.partition.blocking.values())
    return tuple(sorted(b.key for b in open_ones if b.started and b.state is not BatchState.HELD))
