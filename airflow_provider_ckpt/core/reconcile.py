"""Reconcile a partition with the sink's receipts at the start of a run, and rewind it (semantics, sections 2 and 4).

Both use the transitions in ``partition.py`` and add no state of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_ckpt.core.batch import BatchState, Receipt
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.tickets import Event

LOST_REWIND = "the sink holds receipts of a rewind that this ledger has forgotten"
"""Reason of a rewind that this ledger has lost and that is repeated because of the sink's receipts."""


def matches_batch(partition: Partition, receipt: Receipt) -> bool:
    """Return whether a receipt of this generation matches a batch of the partition; else it must be imported."""
    batch = partition.batches.get(receipt.key.seq)
    if batch is None:
        return receipt.key.seq < partition.next_seq and receipt.range.end <= partition.committed
    return batch.state is not BatchState.SUPERSEDED and batch.started and batch.range == receipt.range


def reconcile(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> list[Event]:
    """Settle the sink's receipts, then end the attempts that older epochs left open.

    Call it after the sink was fenced with ``epoch``: from then on an older attempt without a receipt never gets one.
    Receipts of older generations are ignored. A receipt of a newer generation shows that this ledger was restored from
    a backup that is older than a rewind; the rewind is then repeated. Its target position is lost, but it was neither
    after the first of its receipts nor after the checkpoint of the generation before. The new generation starts at the
    lower of the two, so nothing is left out.

    :param partition: the partition, which is changed
    :param receipts: the sink's receipts of this partition that the ledger does not know, see :class:`~.receipts.Known`
    :param epoch: the lease's epoch
    :return: the events
    """
    return [event for events in reconcile_by_generation(partition, receipts, epoch=epoch) for event in events]


def reconcile_by_generation(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> Iterator[list[Event]]:
    """Reconcile like :func:`reconcile`, yielding the events generation by generation.

    Each list but the last ends with the rewind to the next generation, so the caller can store the ended generation.

    :param partition: the partition, which is changed
    :param receipts: as for :func:`reconcile`
    :param epoch: the lease's epoch
    """
    found: dict[int, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.key.generation, []).append(receipt)
    events = _settle_generation(partition, found.get(partition.generation, []), epoch)
    for generation in sorted(number for number in found if number > partition.generation):
        to = min(partition.committed, *(receipt.range.start for receipt in found[generation]))
        yield events + rewind(partition, to, generation=generation, reason=LOST_REWIND)
        events = _settle_generation(partition, found[generation], epoch)
    yield events


def _settle_generation(partition: Partition, receipts: Sequence[Receipt], epoch: int) -> list[Event]:
    """Settle or import receipts of this generation, and fence older attempts. The checkpoint moves once, at the end."""
    strangers: list[Receipt] = []
    events: list[Event] = []
    for receipt in receipts:
        if matches_batch(partition, receipt):
            events += partition.ack(receipt, advance=False)
        else:
            strangers.append(receipt)
    events += partition.import_receipts(strangers, advance=False)
    for seq, batch in partition.in_flight.items():
        if batch.epoch is not None and batch.epoch < epoch:
            events += partition.fence(partition.sending(seq))[1]
    return events + partition.advance()


def rewind(partition: Partition, to: int, *, generation: int, reason: str) -> list[Event]:
    """Start a new generation at an earlier position; unresolved batches of this generation are superseded.

    Batches that were resolved beyond the checkpoint go to ``passed``: they keep their verdicts, and the new generation
    reads their ranges again.

    :param partition: the partition, which is changed
    :param to: the first position to read again, at most ``committed``
    :param generation: the new generation, greater than the partition's
    :param reason: the reason, stored in the event
    :return: the events
    :raises LedgerStateError: if the position is after the checkpoint, because records would be skipped, or the
        generation is not a new one
    """
    if to > partition.committed or generation <= partition.generation:
        raise LedgerStateError(
            f"the checkpoint of partition {partition.id!r} is {partition.committed} in generation "
            f"{partition.generation}; it cannot be rewound to {to} in generation {generation}.",
            position=to,
            hint="Give a position at or before the checkpoint; to skip records after it, skip their batches.",
        )
    events: list[Event] = []
    for seq in partition.blocking:
        events += partition.supersede(seq)
    before = {"generation": partition.generation, "committed": partition.committed}
    partition.passed += partition.pending_acks.values()
    partition.batches = {}
    partition.generation, partition.next_seq = generation, 0
    partition.base = partition.committed = partition.planned_end = to
    detail = {"before": before, "after": {"generation": generation, "committed": to}, "reason": reason}
    return [*events, Event("rewound", partition.id, generation, None, detail)]
