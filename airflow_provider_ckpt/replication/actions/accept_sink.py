"""Users' actions on a sink that a run has refused: accept it as it is, or move to another one.

Both fence the sink and read its receipts first. After an acceptance, either what the sink has lost is sent again or the
pipeline continues from its checkpoint. A move reconciles with the previous sink, and the next run delivers to the sink
that it declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core import reconcile
from airflow_provider_ckpt.core.accepted_sink import AcceptedSink, find_lost_receipts
from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import (
    ExpectedSinkState,
    SinkDifference,
    UnfinishedAcceptance,
    describe_differences,
    differences,
)
from airflow_provider_ckpt.core.dead_letter_index import DeadLetters
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.resend_lost import ResendPlan, find_lost
from airflow_provider_ckpt.replication import owner as owners
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.refuse_sink import (
    compare_states,
    nothing_to_accept,
    read_receipts,
    readable_receipts,
)
from airflow_provider_ckpt.replication.setup import OpenConnectors

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.core.receipt import KnownReceipts
    from airflow_provider_ckpt.ledger.types import ActionResult, PartitionRecord
    from airflow_provider_ckpt.replication.setup import PipelineContext

_RECEIPTS_LOST = frozenset(
    {SinkDifference.FENCE_BELOW, SinkDifference.RECEIPTS_MISSING, SinkDifference.RECEIPTS_UNREADABLE}
)


def make_acceptance(setup: PipelineContext, *, resend: bool, start: Mapping[str, int] | None = None) -> Action:
    """Return the action that accepts the sink as it is now; nothing is changed.

    :param setup: the pipeline's setup
    :param resend: send again what the sink has no receipt for; else continue from the checkpoint
    :param start: by source partition, the first position to send again if receipts do not tell what is lost
    :raises LedgerStateError: if the sink is as the ledger left it, or ``start`` lies beyond a checkpoint
    :raises ConfigError: if the sink is another one, or nothing tells what has to be sent again
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
                f"the sink is {found.location}, and this pipeline delivered to {known.location} so far.",
                pipeline=name,
                hint=f'If that is intended, run `airflow ckpt move {name} --reason "..."`.',
            )
        before = known.unfinished_acceptance or UnfinishedAcceptance(frozenset(), "")
        description = before.description or describe_differences(known, found, found_differences)
        evidence = UnfinishedAcceptance(
            before.differences.union(found_differences), description, before.lost_batches | found.lost_batches
        )
        if not resend:
            lost = _RECEIPTS_LOST & evidence.differences
            unclear = (
                _attempted_batches(
                    _reconciled_partitions(setup, readable_receipts(opened.sink, _known_positions(setup)))
                )
                if lost
                else ()
            )
            return Action(ActionKind.KEEP_SINK, batches=unclear)
        if setup.pipeline.delivery == "at_most_once":
            raise ConfigError(
                "with delivery: at_most_once nothing is sent again.",
                pipeline=name,
                hint="Use --keep, and `airflow ckpt rewind` if records are to be read again anyway.",
            )
        if start:
            _refuse_beyond(
                setup, _reconciled_partitions(setup, readable_receipts(opened.sink, _known_positions(setup))), start
            )
            return Action(ActionKind.RESEND_TO_SINK, positions=start)
        return _make_resend(setup, opened.sink, evidence)
    finally:
        opened.close()


def make_move(setup: PipelineContext, *, unreachable: bool = False) -> Action:
    """Return the action after which the next run delivers to whatever sink it declares; nothing is changed.

    :param setup: setup with the previous sink
    :param unreachable: whether the previous sink can no longer be asked what it has received
    """
    partitions = setup.ledger.partitions(setup.pipeline.name)
    return Action(
        ActionKind.MOVE, batches=_attempted_batches(partitions) if unreachable else (), unreachable=unreachable
    )


def try_acceptance(setup: PipelineContext, action: Action, *, actor: str, reason: str | None) -> ActionResult:
    """Try an acceptance on the ledger after importing the sink's receipts, and roll back; the sink is not fenced.

    :param setup: the pipeline's setup
    :param action: action that :func:`make_acceptance` returned
    :param actor: the actor
    :param reason: the actor's reason
    :raises LedgerStateError: if the action does not fit
    """
    opened = OpenConnectors(setup)
    try:
        new_receipts = readable_receipts(opened.sink, _known_positions(setup))
        return setup.ledger.action(
            setup.pipeline.name, action, actor=actor, reason=reason, dry_run=True, receipts=new_receipts
        )
    finally:
        opened.close()


def apply_sink_change(
    setup: PipelineContext, action: Action, *, actor: str, reason: str | None, proposal: str | None = None
) -> ActionResult:
    """Apply the action of :func:`make_acceptance` or :func:`make_move` after fencing the sink.

    Waits for the lease if need be.

    :param setup: the pipeline's setup; for a move, with the previous sink
    :param action: action that :func:`make_acceptance` or :func:`make_move` returned
    :param actor: the actor
    :param reason: the actor's reason, which the audit log stores
    :param proposal: id of the approved proposal that this uses up
    :raises LeaseBusyError: if a run holds the lease
    :raises LedgerStateError: if the action no longer fits; nothing was changed, and a changed sink stays refused
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
            _refuse_other_losses(setup, run.sink, action)
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
    """The losses that an audit is not to report any more: what the sink holds is compared with the ledger now."""
    recorded = setup.ledger.ledger_snapshot(setup.pipeline.name)
    receipts = read_receipts(sink, {})[0]
    rows = sink.target_rows(exact=True) if setup.pipeline.sink.mode == "append" else None
    missing = None if rows is None else sum(receipt.counts.delivered for receipt in receipts) - rows
    lost = find_lost_receipts(recorded.passed, recorded.batches.values(), receipts)
    return AcceptedSink(lost, missing)


def _left_behind(setup: PipelineContext) -> AcceptedSink:
    """The receipts that the sink so far keeps: a pipeline that moves need not have them in the new one."""
    recorded = setup.ledger.ledger_snapshot(setup.pipeline.name)
    return AcceptedSink(find_lost_receipts(recorded.passed, recorded.batches.values(), ()))


def _make_resend(setup: PipelineContext, sink: Sink, evidence: UnfinishedAcceptance) -> Action:
    """Return the action that sends again what is lost, including batches whose receipts the ledger does not know.

    :param evidence: what was seen of the sink; a new fence destroys some of it
    """
    name, ledger = setup.pipeline.name, setup.ledger
    receipts, _ = read_receipts(sink, {})
    records = _reconciled_partitions(setup, read_receipts(sink, _known_positions(setup))[0])
    receipts_tell = bool(_RECEIPTS_LOST & evidence.differences)
    lost_batches = evidence.lost_batches.union(
        sink.batches_without_receipt([receipt.key for receipt in receipts]) if receipts else ()
    )
    intact = [receipt for receipt in receipts if receipt.key not in lost_batches]
    first = ledger.first_positions(name)
    emptied = setup.pipeline.sink.may_be_emptied
    state = "may be emptied on purpose (sink.may_be_emptied)" if emptied else "is not empty"
    unreadable = SinkDifference.RECEIPTS_UNREADABLE in evidence.differences
    has_rows = unreadable or any(receipt.counts.delivered for receipt in intact)
    if has_rows and not emptied and sink.target_rows(exact=True) == 0:
        intact = []
    elif unreadable:
        raise ConfigError(
            f"receipts cannot be read ({evidence.description.rstrip('.')}), and the target {state}, so it is "
            "unknown which batches it holds: sent again, they would be there twice.",
            pipeline=name,
            hint="Use --keep, which goes on from the checkpoint with a new chain of receipts. Where rows are gone too, "
            "name the first position to send again with --from.",
        )
    elif not receipts_tell and not lost_batches:
        otherwise = "" if emptied else "; after emptying the target, --resend sends everything"
        raise ConfigError(
            f"rows that were delivered may be gone although their receipts stand, and the target {state}, so "
            "it is unknown which ones.",
            pipeline=name,
            hint=f"Name the first position to send again with --from, or go on with --keep{otherwise}.",
        )
    lost = find_lost(
        (record.partition for record in records.values()),
        _ranges_by_partition(intact),
        first=first,
        skipped=ledger.skipped_ranges(name),
        by_key=setup.pipeline.sink.mode == "upsert",
    )
    dead_letters = _lost_replays(records, lost)
    return Action(
        ActionKind.RESEND_TO_SINK,
        positions=lost.positions,
        ranges=lost.ranges,
        dead_letters=dead_letters,
        from_receipts=True,
    )


def _refuse_other_losses(setup: PipelineContext, sink: Sink, action: Action) -> None:
    """Determine again, under the lease, what has to be sent again, and refuse if it differs from what was shown.

    :raises LedgerStateError: if it differs
    """
    name = setup.pipeline.name
    evidence = setup.ledger.expected_sink_state(name).unfinished_acceptance or UnfinishedAcceptance(frozenset(), "")
    if _make_resend(setup, sink, evidence).to_json() != action.to_json():
        raise LedgerStateError(
            "what has to be sent again is not what was shown: a run or another user has changed the pipeline or the "
            "sink meanwhile. Runs stay refused.",
            pipeline=name,
            hint=f"Check again with `airflow ckpt accept-sink {name} --resend --dry-run`.",
        )


def _refuse_beyond(setup: PipelineContext, records: Mapping[str, PartitionRecord], start: Mapping[str, int]) -> None:
    """Refuse to send again from a position beyond the checkpoint, since that would skip records.

    :raises LedgerStateError: naming both positions
    """
    for partition, position in start.items():
        committed = records[partition].partition.committed if partition in records else position
        if position > committed:
            raise LedgerStateError(
                f"{position:,} of {partition} lies beyond its checkpoint, {position_text(committed, ',')}.",
                pipeline=setup.pipeline.name,
                position=position,
                hint="Name the first position whose rows are gone; what lies beyond the checkpoint is sent anyway.",
            )


def _known_positions(setup: PipelineContext) -> dict[str, KnownReceipts]:
    """Return for each partition the position up to which the ledger knows all of the sink's receipts."""
    name = setup.pipeline.name
    records = setup.ledger.partitions(name)
    return {**setup.ledger.collected_ends(name), **{partition: record.known for partition, record in records.items()}}


def _reconciled_partitions(setup: PipelineContext, receipts: Iterable[Receipt]) -> Mapping[str, PartitionRecord]:
    """Return the ledger's partitions as they would be after reconciling with these receipts; nothing is stored."""
    records = setup.ledger.partitions(setup.pipeline.name)
    new_receipts: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        new_receipts.setdefault(receipt.key.partition, []).append(receipt)
    for name, record in records.items():
        reconcile.reconcile(record.partition, new_receipts.get(name, ()), epoch=0)
    return records


def _ranges_by_partition(receipts: Sequence[Receipt]) -> dict[tuple[int, str], list[Range]]:
    found: dict[tuple[int, str], list[Range]] = {}
    for receipt in receipts:
        found.setdefault((receipt.key.generation, receipt.key.partition), []).append(receipt.range)
    return found


def _lost_replays(records: Mapping[str, PartitionRecord], lost: ResendPlan) -> tuple[DeadLetters, ...]:
    """Return the dead letters whose replay is lost."""
    return tuple(
        positioned.dead_letters
        for partition, span in lost.replayed
        for positioned in Replay.from_json(records[partition].state).within(span)
    )


def _attempted_batches(records: Mapping[str, PartitionRecord]) -> tuple[BatchKey, ...]:
    """Return batches that were attempted and have no verdict; without receipts their delivery is unknown."""
    open_ones = (batch for record in records.values() for batch in record.partition.blocking.values())
    return tuple(sorted(b.key for b in open_ones if b.started and b.state is not BatchState.HELD))
