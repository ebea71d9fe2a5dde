"""Reconcile the ledger with the sink's receipts at the start of a run (semantics, section 4, steps 3 and 4).

A run calls this after it has acquired the lease and fenced the sink. ``core/reconcile.py`` decides which batches
change; this module applies the receipts to the loaded partitions, stores them, and updates the dead letter index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airflow_provider_ckpt.core import reconcile as core_reconcile
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey, side_generation
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import LostReplays
from airflow_provider_ckpt.core.side_partitions import restore_replay
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.commands import generations
from airflow_provider_ckpt.ledger.store import dead_letter_index, partitions
from airflow_provider_ckpt.ledger.store import events as event_store
from airflow_provider_ckpt.ledger.types import Reconciliation
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


def reconcile(work: UnitOfWork, receipts: Iterable[Receipt], lost_replays: LostReplays) -> Reconciliation:
    """Resolve batches by the sink's receipts, import unknown receipts, and end attempts that older epochs left open.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param receipts: the sink's receipts, read after the sink was fenced
    :param lost_replays: replays of dead letters that have receipts in the sink and are unknown to the ledger
    :return: the receipts that were new to the ledger, the batches whose attempts were ended, and the rewinds that were
        repeated, because a ledger restored from a backup had lost them
    :raises LedgerStateError: if a receipt is of a source partition that the ledger does not know
    """
    result = Reconciliation()
    _restore_lost_replays(work, lost_replays)
    by_partition: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        work.pipeline_state.generation = max(work.pipeline_state.generation, receipt.key.generation)
        if not receipt.key.is_side_partition or receipt.key.partition in work.stored:
            by_partition.setdefault(work.item(receipt.key.partition).partition.id, []).append(receipt)
    for item in work.touched_partitions:
        _reconcile_partition(work, item, by_partition.get(item.partition.id, []), result)
    _give_up_unconfirmed(work)
    new_receipts = [*result.acked, *result.imported]
    dead_letter_index.update_index(
        work.connection, work.lease.pipeline, [(receipt, {}) for receipt in new_receipts], work.replays, lost_replays
    )
    work.write(
        "reconciled",
        {
            "acked": len(result.acked),
            "imported": len(result.imported),
            "fenced": len(result.fenced),
            "counts": event_store.sum_counts(receipt.counts for receipt in new_receipts),
        },
    )
    return result


def _restore_lost_replays(work: UnitOfWork, lost_replays: LostReplays) -> None:
    """Add the side partitions of replays that the ledger has lost.

    Batches of these replays that have a receipt are imported afterwards; the other batches are planned and sent again.

    :param work: partitions of the pipeline, to which the side partitions are added
    :param lost_replays: the replays that only the sink still knows
    """
    for name, replay in lost_replays.replays.items():
        key = BatchKey(side_generation(name), name, 0)
        if key.source in work.stored:
            _, events = restore_replay(work.pipeline_state, key.source, key.generation, replay)
            generations.record_generations(work, events, "the ledger had no record of it")
            work.events += events


def _reconcile_partition(
    work: UnitOfWork, item: partitions.LoadedPartition, receipts: list[Receipt], result: Reconciliation
) -> None:
    rest: dict[BatchKey, Receipt] = {}
    for receipt in receipts:
        if item.confirm(receipt):
            result.acked.append(receipt)
        else:
            rest[receipt.key] = receipt
    for events in core_reconcile.reconcile_by_generation(item.partition, rest.values(), epoch=work.lease.epoch):
        _record_events(work, events, rest, result)
        if item.rewound:
            generations.record_generations(work, events)
            work.store()
            result.repeated_rewinds[item.partition.id] = KnownReceipts(item.partition.generation, item.partition.base)


def _record_events(
    work: UnitOfWork, events: Sequence[Event], rest: Mapping[BatchKey, Receipt], result: Reconciliation
) -> None:
    for event in events:
        key = BatchKey(event.generation, event.partition, -1 if event.seq is None else event.seq)
        if event.kind == "acked":
            result.acked.append(rest[key])
        elif event.kind == "receipt_imported":
            result.imported.append(rest[key])
        elif event.kind == "fenced":
            work.ended(key, AttemptOutcome.FENCED)
            result.fenced.append(key)
    work.events += events


def _give_up_unconfirmed(work: UnitOfWork) -> None:
    """Stop waiting for the receipts of batches that were sent at most once under older epochs.

    It remains unknown whether the sink has received these batches; each gets the event ``unconfirmed``.
    """
    for item in work.touched_partitions:
        for seq, batch in list(item.unconfirmed.items()):
            if batch.epoch is not None and batch.epoch < work.lease.epoch:
                item.receipts_to_merge.append(item.unconfirmed.pop(seq))
                work.events.append(Event("unconfirmed", batch.key.partition, batch.key.generation, seq))
