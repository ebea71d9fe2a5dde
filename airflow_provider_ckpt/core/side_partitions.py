"""Add side partitions to a pipeline, which send records of a source partition again without moving its checkpoint.

A side partition reads a range again (``replay_range.py``) or replays dead letters. Each has a generation of its own
(semantics, sections 5 and 8).
"""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.core.batch_key import SideKind, side_partition
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import PipelineState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.tickets import Event


def replay(pipeline_state: PipelineState, source: str, dead_letters: Replay) -> tuple[Partition, list[Event]]:
    """Add a side partition that replays dead letters of a source partition; its positions number the dead letters.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param source: the source partition's id
    :param dead_letters: the dead letters to replay, in order
    :return: the side partition, and the events for the audit log
    :raises LedgerStateError: if there is no such source partition
    """
    pipeline_state.partition(source)
    return _add_replay(pipeline_state, source, dead_letters, None)


def restore_replay(
    pipeline_state: PipelineState, source: str, generation: int, dead_letters: Replay
) -> tuple[Partition, list[Event]]:
    """Add a side partition that replays dead letters and that this ledger has lost, with its former generation.

    The generation is known from the sink's receipts, which then match the restored side partition.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param source: the source partition's id
    :param generation: the generation that the side partition had before
    :param dead_letters: the dead letters that it replays, in order
    :return: the side partition, and the events for the audit log
    """
    return _add_replay(pipeline_state, source, dead_letters, generation)


def _add_replay(
    pipeline_state: PipelineState, source: str, dead_letters: Replay, generation: int | None
) -> tuple[Partition, list[Event]]:
    span = Range(0, dead_letters.records)
    return add_side_partition(pipeline_state, SideKind.DLQ, source, span, generation, state=dead_letters.to_json())


def add_side_partition(
    pipeline_state: PipelineState, side: SideKind, source: str, span: Range, generation: int | None = None, **more: Any
) -> tuple[Partition, list[Event]]:
    """Add a side partition, whose id contains its purpose, its generation and the id of the source partition.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param side: the purpose of the side partition
    :param source: the source partition's id
    :param span: the positions of the side partition
    :param generation: the generation; None for the next one of the pipeline
    :param more: JSON-ready details to add to the event
    :return: the side partition, and the events for the audit log
    """
    number = generation or pipeline_state.generation + 1
    pipeline_state.generation = max(pipeline_state.generation, number)
    partition = Partition(
        side_partition(side, number, source),
        generation=number,
        base=span.start,
        limit=span.end,
        phase=pipeline_state.phase,
    )
    pipeline_state.partitions[partition.id] = partition
    detail = {"range": [span.start, span.end], "source": source, **more}
    return partition, [Event("side_partition_started", partition.id, partition.generation, None, detail)]
