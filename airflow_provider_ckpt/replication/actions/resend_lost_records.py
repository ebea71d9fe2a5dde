"""Find the records that a changed sink has lost, and make the action that sends them again.

The receipts that the sink still has show which batches it has lost. If they do not show it, a user has to name the
first position to send again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core import reconcile
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.changed_sink import SinkDifference, UnfinishedAcceptance
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.resend_lost import ResendPlan, find_lost
from airflow_provider_ckpt.replication.run.refuse_changed_sink import read_receipts

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.core.receipt import KnownReceipts
    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.setup import PipelineContext

RECEIPTS_LOST = frozenset(
    {SinkDifference.FENCE_BELOW, SinkDifference.RECEIPTS_MISSING, SinkDifference.RECEIPTS_UNREADABLE}
)
"""Kinds of differences after which the sink's receipts no longer show all batches that were delivered."""


def make_resend(setup: PipelineContext, sink: Sink, evidence: UnfinishedAcceptance) -> Action:
    """Return the action that sends the records again that the sink has lost.

    A batch is lost if the ledger counts it as delivered and the sink has no receipt of it, or reports that its rows are
    gone. The receipts that the ledger does not know yet are applied first. If the target has no rows although receipts
    count delivered rows, all batches are lost, unless the declaration says that the target may be emptied.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param sink: the pipeline's sink
    :param evidence: differences of the sink that were found before; a fence raised since then hides some of them
    :raises ConfigError: if it is unknown which records are lost
    """
    name, ledger = setup.pipeline.name, setup.ledger
    receipts, _ = read_receipts(sink, {})
    records = reconciled_partitions(setup, read_receipts(sink, known_positions(setup))[0])
    receipts_tell = bool(RECEIPTS_LOST & evidence.differences)
    lost_batches = evidence.lost_batches.union(
        sink.batches_without_receipt([receipt.key for receipt in receipts]) if receipts else ()
    )
    intact = [receipt for receipt in receipts if receipt.key not in lost_batches]
    first = ledger.first_positions(name)
    emptied = setup.pipeline.sink.may_lose_rows
    key = "sink.may_be_emptied" if setup.pipeline.sink.replaces is None else "sink.mode: replace"
    state = f"may be emptied on purpose ({key})" if emptied else "is not empty"
    unreadable = SinkDifference.RECEIPTS_UNREADABLE in evidence.differences
    has_rows = unreadable or any(receipt.counts.delivered for receipt in intact)
    if has_rows and not emptied and sink.target_rows(exact=True) == 0:
        intact = []
    elif unreadable:
        raise ConfigError(
            f"receipts cannot be read ({evidence.description.rstrip('.')}), and the target {state}, so it is "
            "unknown which batches it contains; sending them again could add their rows twice.",
            pipeline=name,
            hint="Use --keep, which continues from the checkpoint with a new chain of receipts. If rows are lost too, "
            "use --resend with --from and the first position to send again.",
        )
    elif not receipts_tell and not lost_batches:
        otherwise = "" if emptied else ". If you empty the target first, --resend sends everything again"
        raise ConfigError(
            f"delivered rows may be lost although the sink still has their receipts, and the target {state}, so "
            "it is unknown which rows are lost.",
            pipeline=name,
            hint="Add --from with the first position to send again, or use --keep to continue from the checkpoint"
            f"{otherwise}.",
        )
    lost = find_lost(
        (record.partition for record in records.values()),
        _ranges_by_partition(intact),
        first=first,
        skipped=ledger.skipped_ranges(name),
        by_key=setup.pipeline.sink.upserts,
    )
    dead_letters = _lost_replays(records, lost)
    return Action(
        ActionKind.RESEND_TO_SINK,
        positions=lost.positions,
        ranges=lost.ranges,
        dead_letters=dead_letters,
        from_receipts=True,
    )


def refuse_other_losses(setup: PipelineContext, sink: Sink, action: Action) -> None:
    """Raise an error if the records to send again are no longer those that the action names; called under the lease.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param sink: the pipeline's sink
    :param action: action that the user has seen
    :raises LedgerStateError: if a run or another user has changed the pipeline or the sink since the action was made
    """
    name = setup.pipeline.name
    evidence = setup.ledger.expected_sink_state(name).unfinished_acceptance or UnfinishedAcceptance(frozenset(), "")
    if make_resend(setup, sink, evidence).to_json() != action.to_json():
        raise LedgerStateError(
            "the ranges to send again have changed since they were determined: a run or another user has changed the "
            "pipeline or the sink meanwhile. Nothing was accepted, so runs are still refused.",
            pipeline=name,
            hint=f"Look at them again with `airflow ckpt accept-sink {name} --resend --dry-run`.",
        )


def refuse_beyond(setup: PipelineContext, records: Mapping[str, PartitionRecord], start: Mapping[str, int]) -> None:
    """Raise an error if a user's first position to send again lies beyond the checkpoint; records would be skipped.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param records: the ledger's partitions
    :param start: by source partition, the first position to send again
    :raises LedgerStateError: if a position lies beyond the checkpoint; the error names both
    """
    for partition, position in start.items():
        committed = records[partition].partition.committed if partition in records else position
        if position > committed:
            raise LedgerStateError(
                f"--from {position:,} lies beyond the checkpoint of partition {partition}, "
                f"{position_text(committed, ',')}.",
                pipeline=setup.pipeline.name,
                position=position,
                hint="Give the first position whose rows are lost; what lies beyond the checkpoint is sent anyway.",
            )


def known_positions(setup: PipelineContext) -> dict[str, KnownReceipts]:
    """Return, by partition, the generation and the position up to which the ledger knows all receipts of the sink.

    Side partitions are included.

    :param setup: the pipeline with its ledger
    """
    name = setup.pipeline.name
    records = setup.ledger.partitions(name)
    return {**setup.ledger.collected_ends(name), **{partition: record.known for partition, record in records.items()}}


def reconciled_partitions(setup: PipelineContext, receipts: Iterable[Receipt]) -> Mapping[str, PartitionRecord]:
    """Return the ledger's partitions as they would be after reconciling with the given receipts; nothing is stored.

    :param setup: the pipeline with its ledger
    :param receipts: receipts of the sink
    """
    records = setup.ledger.partitions(setup.pipeline.name)
    new_receipts: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        new_receipts.setdefault(receipt.key.partition, []).append(receipt)
    for name, record in records.items():
        reconcile.reconcile(record.partition, new_receipts.get(name, ()), epoch=0)
    return records


def _ranges_by_partition(receipts: Sequence[Receipt]) -> dict[tuple[int, str], list[Range]]:
    """Return the ranges of receipts as lists by ``(generation, partition)``, in the order of the given receipts."""
    found: dict[tuple[int, str], list[Range]] = {}
    for receipt in receipts:
        found.setdefault((receipt.key.generation, receipt.key.partition), []).append(receipt.range)
    return found


def _lost_replays(records: Mapping[str, PartitionRecord], lost: ResendPlan) -> tuple[DeadLetters, ...]:
    """Return the dead letters whose replay has no receipt in the sink any more, so that they are parked again.

    :param records: the ledger's partitions
    :param lost: ranges without a receipt, those of replays included
    """
    return tuple(
        positioned.dead_letters
        for partition, span in lost.replayed
        for positioned in Replay.from_json(records[partition].state).within(span)
    )
