"""How a partition meets the truth again: the sink's receipts when a run begins, and a person's rewind.

Semantics, sections 2 and 4. Both are made of the transitions in ``partition.py`` and add no state of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_ckpt.core.batch import BatchState, Receipt
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.tickets import Event

FORGOTTEN = "the sink holds receipts of a rewind that this ledger has forgotten"
"""Reason of a rewind that is made up for from the sink's receipts."""


def knows(partition: Partition, receipt: Receipt) -> bool:
    """Whether a receipt of this generation speaks of a batch as it is here; otherwise it must be imported."""
    batch = partition.batches.get(receipt.key.seq)
    if batch is None:
        return receipt.key.seq < partition.next_seq and receipt.range.end <= partition.committed
    return batch.state is not BatchState.SUPERSEDED and batch.begun and batch.range == receipt.range


def reconcile(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> list[Event]:
    """Agree with the sink's receipts, then end what older epochs left open.

    Call it after the fence of ``epoch``: from then on an older attempt that has no receipt never gets one. Receipts of
    generations that a rewind has ended are passed over. One of a generation that is still to come says that this ledger
    is older than a rewind, which is then made up for. Where that went to is not known any more, but it was neither
    beyond the first of its receipts nor beyond what the generation before had resolved. The generation begins at the
    lower of the two, so nothing is left out.

    :param receipts: the sink's, of this partition, that are news by :class:`~.receipts.Known`
    :param epoch: the lease's epoch
    """
    return [event for events in by_generation(partition, receipts, epoch=epoch) for event in events]


def by_generation(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> Iterator[list[Event]]:
    """:func:`reconcile`, stopping wherever a generation has ended and the next has only begun."""
    found: dict[int, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.key.generation, []).append(receipt)
    events = _settle(partition, found.get(partition.generation, []), epoch)
    for generation in sorted(number for number in found if number > partition.generation):
        to = min(partition.committed, *(receipt.range.start for receipt in found[generation]))
        yield events + rewind(partition, to, generation=generation, reason=FORGOTTEN)
        events = _settle(partition, found[generation], epoch)
    yield events


def _settle(partition: Partition, receipts: Sequence[Receipt], epoch: int) -> list[Event]:
    """Agree with receipts of this generation. The checkpoint moves once, at the end."""
    strangers: list[Receipt] = []
    events: list[Event] = []
    for receipt in receipts:
        if knows(partition, receipt):
            events += partition.ack(receipt, advance=False)
        else:
            strangers.append(receipt)
    events += partition.import_receipts(strangers, advance=False)
    for seq, batch in partition.in_flight.items():
        if batch.epoch is not None and batch.epoch < epoch:
            events += partition.fence(partition.sending(seq))[1]
    return events + partition.advance()


def rewind(partition: Partition, to: int, *, generation: int, reason: str) -> list[Event]:
    """Begin a new generation at an earlier position; what is unresolved in this one is superseded.

    What this generation resolved beyond its checkpoint goes to ``passed``: it keeps its verdict, and the new generation
    reads its range again.

    :param to: the first position to read again, at most ``committed``
    :param generation: the new one, greater than this
    :raises LedgerStateError: if the position lies ahead of the checkpoint: going on from there would skip records
    """
    if to > partition.committed or generation <= partition.generation:
        raise LedgerStateError(
            f"partition {partition.id!r} stands at {partition.committed} in generation {partition.generation}; it "
            f"cannot be rewound to {to} in generation {generation}.",
            position=to,
            hint="Give a position at or before the checkpoint; what lies ahead of it is skipped batch by batch.",
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
