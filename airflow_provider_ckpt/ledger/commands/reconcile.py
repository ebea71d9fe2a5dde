"""First command of a run: make the ledger agree with the sink's receipts (semantics, section 4, steps 3 and 4).

``core/reconcile.py`` decides; this module loads, stores, and updates the dead letter index. Call it after the sink was
fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airflow_provider_ckpt.core import reconcile as decisions
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchKey, Receipt, side_generation
from airflow_provider_ckpt.core.dead_letters import Forgotten
from airflow_provider_ckpt.core.receipts import Known
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.commands import generations
from airflow_provider_ckpt.ledger.store import dead_letters, partitions
from airflow_provider_ckpt.ledger.store import events as trail
from airflow_provider_ckpt.ledger.types import Reconciliation
from airflow_provider_ckpt.ledger.unit_of_work import Work


def reconcile(work: Work, receipts: Iterable[Receipt], forgotten: Forgotten) -> Reconciliation:
    """Acknowledge known receipts, import the others, then fence attempts that older epochs left open.

    :param work: the command's unit of work
    :param receipts: the sink's receipts, read after it was fenced
    :param forgotten: replays of dead letters that have receipts in the sink and are unknown to the ledger
    :raises LedgerStateError: if a receipt is of a source partition that the ledger does not know
    """
    result = Reconciliation()
    _recall(work, forgotten)
    by_partition: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        work.machine.generation = max(work.machine.generation, receipt.key.generation)
        if not receipt.key.side or receipt.key.partition in work.stored:
            by_partition.setdefault(work.item(receipt.key.partition).partition.id, []).append(receipt)
    for item in work.changing:
        _reconcile(work, item, by_partition.get(item.partition.id, []), result)
    _give_up_unconfirmed(work)
    news = [*result.acked, *result.imported]
    dead_letters.index(
        work.connection, work.lease.pipeline, [(receipt, {}) for receipt in news], work.replays, forgotten
    )
    work.write(
        "reconciled",
        {
            "acked": len(result.acked),
            "imported": len(result.imported),
            "fenced": len(result.fenced),
            "counts": trail.total(receipt.counts for receipt in news),
        },
    )
    return result


def _recall(work: Work, forgotten: Forgotten) -> None:
    """Add forgotten replays as side partitions again: batches with a receipt are imported, the others will be sent."""
    for name, replay in forgotten.replays.items():
        key = BatchKey(side_generation(name), name, 0)
        if key.source in work.stored:
            _, events = work.machine.recall(key.source, key.generation, replay)
            generations.note(work, events, "the ledger had forgotten it")
            work.events += events


def _reconcile(work: Work, item: partitions.Stored, receipts: list[Receipt], result: Reconciliation) -> None:
    rest: dict[BatchKey, Receipt] = {}
    for receipt in receipts:
        if item.confirm(receipt):
            result.acked.append(receipt)
        else:
            rest[receipt.key] = receipt
    for events in decisions.by_generation(item.partition, rest.values(), epoch=work.lease.epoch):
        _note(work, events, rest, result)
        if item.rewound:
            generations.note(work, events)
            work.store()
            result.caught_up[item.partition.id] = Known(item.partition.generation, item.partition.base)


def _note(work: Work, events: Sequence[Event], rest: Mapping[BatchKey, Receipt], result: Reconciliation) -> None:
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


def _give_up_unconfirmed(work: Work) -> None:
    """Stop waiting for receipts of at-most-once batches of older epochs; whether they arrived will never be known."""
    for item in work.changing:
        for seq, batch in list(item.unconfirmed.items()):
            if batch.epoch is not None and batch.epoch < work.lease.epoch:
                item.merged.append(item.unconfirmed.pop(seq))
                work.events.append(Event("unconfirmed", batch.key.partition, batch.key.generation, seq))
