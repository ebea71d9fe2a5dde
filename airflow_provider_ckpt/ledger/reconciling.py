"""The command with which a run begins: make the ledger agree with the sink's receipts (semantics, section 4.3 and 4.4).

Call it after the sink was fenced: the receipts are final then, and an older epoch's attempt without one never gets one.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchKey, BatchState, Receipt
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Event
from airflow_provider_ckpt.ledger import receipts as ranges
from airflow_provider_ckpt.ledger import settling, trail
from airflow_provider_ckpt.ledger.records import Reconciliation
from airflow_provider_ckpt.ledger.work import Work


def reconcile(work: Work, receipts: Iterable[Receipt]) -> Reconciliation:
    """Acknowledge known receipts, import the others, then fence what older epochs left open.

    :raises LedgerStateError: if a receipt is of a partition or a newer generation that the ledger does not know
    """
    result = Reconciliation()
    strangers: list[Receipt] = []
    for receipt in receipts:
        if _foreign(work, receipt):
            continue
        if _stranger(work, receipt):
            strangers.append(receipt)
        elif settling.take(work, receipt):
            result.acked.append(receipt)
    for receipt in strangers:
        work.events += work.partition(receipt.key).import_receipt(receipt, advance=False)
        result.imported.append(receipt)
    result.fenced.extend(_fence(work))
    work.advance()
    _give_up_unconfirmed(work)
    news = [*result.acked, *result.imported]
    ranges.index_letters(
        work.connection, work.lease.pipeline, ((receipt, {}) for receipt in news if receipt.counts.dead_lettered)
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


def _fence(work: Work) -> list[BatchKey]:
    """Put back to planned what older epochs left open."""
    fenced = []
    for partition in settling.open_partitions(work):
        for seq, batch in partition.in_flight.items():
            if batch.epoch is not None and batch.epoch < work.lease.epoch:
                work.events += partition.fence(partition.sending(seq))[1]
                work.ended(batch.key, AttemptOutcome.FENCED)
                fenced.append(batch.key)
    return fenced


def _give_up_unconfirmed(work: Work) -> None:
    """Stop waiting to hear of what older epochs sent at most once: whether it arrived will never be known."""
    for item in work.changing:
        for seq, batch in list(item.unconfirmed.items()):
            if batch.epoch is not None and batch.epoch < work.lease.epoch:
                item.merged.append(item.unconfirmed.pop(seq))
                work.events.append(Event("unconfirmed", batch.key.partition, batch.key.generation, seq))


def _foreign(work: Work, receipt: Receipt) -> bool:
    """Whether a receipt belongs to a generation that a rewind has ended."""
    current = work.item(receipt.key.partition).partition.generation
    if receipt.key.generation > current:
        raise LedgerStateError(
            f"the sink holds a receipt of generation {receipt.key.generation}, and this ledger knows {current} only: "
            "it is older than the newest rewind.",
            pipeline=work.lease.pipeline,
            batch=str(receipt.key),
            hint="Restore a newer copy of the ledger, or rewind the pipeline again.",
        )
    return receipt.key.generation < current


def _stranger(work: Work, receipt: Receipt) -> bool:
    """Whether the ledger does not know the batch as the receipt has it, and must import it."""
    item = work.item(receipt.key.partition)
    seq = receipt.key.seq
    batch = item.partition.batches.get(seq)
    if batch is None:
        known = seq in item.unconfirmed or (
            seq < item.partition.next_seq and receipt.range.end <= item.partition.committed
        )
        return not known
    if batch.state is BatchState.SUPERSEDED or not batch.begun:
        return True
    return batch.range != receipt.range
