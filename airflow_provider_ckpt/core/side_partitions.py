"""Add side partitions to a pipeline.

A side partition re-reads a range of a source partition that the checkpoint has passed, or replays dead letters,
independently of the source partition's order (semantics, sections 5 and 8). Each has a generation of its own.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.core.batch_key import SideKind, side_partition
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import PipelineState
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.tickets import Event


def re_read(pipeline_state: PipelineState, side: SideKind, source: str, span: Range) -> tuple[Partition, list[Event]]:
    """Add a side partition that reads a range of a source partition again, for a range replay or a recovery.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param side: the purpose of the side partition
    :param source: the source partition's id
    :param span: the range
    :return: the side partition, and the events for the audit log
    :raises LedgerStateError: if the partition is a side partition, or the range reaches beyond the checkpoint
    """
    check_re_read(pipeline_state, source, span)
    return _add(pipeline_state, side, source, span)


def check_re_read(pipeline_state: PipelineState, source: str, span: Range) -> None:
    """Raise an error if a range of a source partition may not be read again.

    A range beyond the checkpoint may contain records that are still to be delivered, which would be delivered twice.

    :param pipeline_state: the pipeline's partitions
    :param source: the source partition's id
    :param span: the range
    :raises LedgerStateError: if the partition is a side partition, or the range reaches beyond the checkpoint
    """
    origin = pipeline_state.partition(source)
    if origin.limit is not None:
        raise LedgerStateError(f"{source!r} is a side partition.", hint="Name the source partition itself.")
    if span.end > origin.committed:
        raise LedgerStateError(
            f"{span} of partition {source!r} reaches beyond the checkpoint, {position_text(origin.committed)}: records "
            "beyond it are still to be delivered.",
            position=origin.committed,
            hint="End the range at the checkpoint.",
        )


def resend_range(pipeline_state: PipelineState, source: str, span: Range) -> tuple[Partition, list[Event]]:
    """Add a side partition that reads a range again which the sink has lost.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param source: the source partition's id
    :param span: the range
    :return: the side partition, and the events for the audit log
    :raises LedgerStateError: if a part of the range is not resolved, or the partition is a side partition
    """
    require_resolved(pipeline_state, source, span)
    return _add(pipeline_state, SideKind.RECOVERY, source, span)


def require_resolved(pipeline_state: PipelineState, source: str, span: Range) -> None:
    """Raise an error if a batch is still to deliver a part of a range, so that reading it again would deliver it twice.

    :param pipeline_state: the pipeline's partitions
    :param source: the source partition's id
    :param span: the range
    :raises LedgerStateError: if a part of the range is not resolved, or the partition is a side partition
    """
    origin = pipeline_state.partition(source)
    mine = [batch.key for batch in origin.blocking.values() if batch.range.overlaps(span)]
    if origin.limit is not None or span.end > origin.planned_end or mine:
        owner = (
            f"batch {mine[0]} covers a part of it" if mine else f"the plan ends at {position_text(origin.planned_end)}"
        )
        raise LedgerStateError(f"{span} of partition {source!r} is still to be delivered: {owner}.")


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
    """Restore a side partition of dead letters that this ledger has lost, with its former generation.

    The sink's receipts name that generation, so they match the restored side partition.

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
    return _add(pipeline_state, SideKind.DLQ, source, span, generation, state=dead_letters.to_json())


def _add(
    pipeline_state: PipelineState, side: SideKind, source: str, span: Range, generation: int | None = None, **more: Any
) -> tuple[Partition, list[Event]]:
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
