"""Read a range of a source partition again, in a side partition: ``replay:…`` for users, ``recovery:…`` for recoveries.

The range must lie below the checkpoint, so that no batch that is still to be delivered contains its records (semantics,
section 5).
"""

from __future__ import annotations

from airflow_provider_ckpt.core.batch_key import SideKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import PipelineState
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.side_partitions import add_side_partition
from airflow_provider_ckpt.core.tickets import Event


def replay_range(
    pipeline_state: PipelineState, side: SideKind, source: str, span: Range
) -> tuple[Partition, list[Event]]:
    """Add a side partition that reads a range of a source partition again, for a range replay or a recovery.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param side: the purpose of the side partition: a replay that a user requests, or a recovery
    :param source: the source partition's id
    :param span: the range
    :return: the side partition, and the events for the audit log
    :raises LedgerStateError: if the partition is a side partition, or the range reaches beyond the checkpoint
    """
    check_replay_range(pipeline_state, source, span)
    return add_side_partition(pipeline_state, side, source, span)


def check_replay_range(pipeline_state: PipelineState, source: str, span: Range) -> None:
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
    """Add a side partition that reads a range again because the sink has lost its rows.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param source: the source partition's id
    :param span: the range
    :return: the side partition, and the events for the audit log
    :raises LedgerStateError: if a part of the range is not resolved, or the partition is a side partition
    """
    require_resolved(pipeline_state, source, span)
    return add_side_partition(pipeline_state, SideKind.RECOVERY, source, span)


def require_resolved(pipeline_state: PipelineState, source: str, span: Range) -> None:
    """Raise an error if a part of a range is not resolved yet; reading the range again would deliver that part twice.

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
