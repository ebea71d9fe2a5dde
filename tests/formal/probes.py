"""Calls of the core that must be refused or change nothing; each is tried once in every state of the search."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from tests.formal import questions as q
from tests.formal.questions import Question


def probes(partition: Partition) -> Iterator[Question]:
    """Receipts of batches that nobody knows, tickets of attempts that are over, work in a pipeline that is draining."""
    next_key = BatchKey(partition.generation, partition.id, partition.next_seq)
    yield q.take, q.receipt_of(next_key, Range(0, 1), Verdict.DELIVERED, epoch=1, attempt=1)
    if partition.phase is not Phase.RUNNING:
        yield q.plan, partition.planned_end, partition.planned_end + 1
    for seq, batch in partition.batches.items():
        yield from _of_batch(seq, batch)
        if batch.state is BatchState.PLANNED and partition.phase is not Phase.RUNNING:
            yield q.begin, seq, 1, False


def _of_batch(seq: int, batch: Batch) -> Iterator[Question]:
    other = q.receipt_of(batch.key, batch.range, Verdict.REJECTED, epoch=batch.epoch or 1, attempt=1)
    if batch.state is BatchState.IN_FLIGHT:
        for ending in (Partition.abandon, Partition.fence, Partition.cancel, Partition.not_attempted):
            yield q.end_again, seq, ending
    elif batch.state in (BatchState.PLANNED, BatchState.HELD):
        if batch.started:
            yield q.skip_begun, seq
            yield q.end_closed, seq
        else:
            yield q.take, other
        if batch.not_before is not None:
            yield q.begin_early, seq, 1
    elif batch.receipt is not None:
        yield q.take, other
        yield q.supersede_resolved, seq
