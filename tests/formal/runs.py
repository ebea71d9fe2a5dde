"""Enumerate the steps that a run can take for a partition in its present state, within a configuration's bounds."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_ckpt.core.batch import Batch, BatchState, Instruction
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from tests.formal import questions as q
from tests.formal.questions import Question
from tests.formal.worlds import Bounds


def options(partition: Partition, epoch: int, bounds: Bounds) -> Iterator[Question]:
    """Everything, but hearing of receipts.

    :param epoch: the run's
    """
    yield from _plans(partition, bounds)
    for seq, batch in partition.batches.items():
        if batch.state is BatchState.PLANNED:
            yield from _planned(seq, batch, epoch, bounds)
        elif batch.state is BatchState.IN_FLIGHT and batch.epoch == epoch:
            yield from _endings(seq, batch, bounds)


def _plans(partition: Partition, bounds: Bounds) -> Iterator[Question]:
    if partition.next_seq >= bounds.batches or partition.phase is not Phase.RUNNING:
        return
    limit = bounds.positions if partition.limit is None else partition.limit
    for size in bounds.sizes:
        if partition.planned_end + size <= limit:
            yield q.plan, partition.planned_end, partition.planned_end + size
    for gap in partition.gaps():
        yield q.plan, gap.start, gap.end


def _planned(seq: int, batch: Batch, epoch: int, bounds: Bounds) -> Iterator[Question]:
    if batch.attempts < bounds.attempts:
        yield q.begin, seq, epoch, bounds.at_most_once
    if bounds.deaths and batch.started:
        yield q.run_alone, seq
    if bounds.gives_up and batch.started:
        yield q.instruct, seq, Instruction.REJECT
        yield q.hold, seq


def _endings(seq: int, batch: Batch, bounds: Bounds) -> Iterator[Question]:
    yield q.cancel, seq
    yield q.abandon, seq
    yield q.not_attempted, seq
    yield q.fail, seq, False, False, False
    if bounds.failures and batch.failures < 1:
        yield q.fail, seq, True, False, True
    elif bounds.failures and batch.round < 2:
        yield q.fail, seq, True, True, False
    if bounds.deaths and batch.deaths < q.DEATHS:
        yield q.died_alone, seq
