"""Models of one pipeline: its partitions, stored actions and refreshes, its audit, and its declaration."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from airflow_provider_ckpt.api.models.fields import (
    ApiModel,
    BatchName,
    Counts,
    Moment,
    PartitionKind,
    Position,
    Span,
)
from airflow_provider_ckpt.api.models.pipeline_list import PipelineRow


class PartitionRow(ApiModel):
    """A partition of a pipeline, with its positions and the numbers of its batches in the present generation.

    :param id: id of the partition
    :param kind: ``source``, or the purpose of a side partition
    :param source: id of the source partition from which the records come; for a source partition, its own id
    :param generation: number of the present generation; a rewind begins the next one
    :param base: first position of the generation
    :param low: low watermark: below it, receipts are merged, so that only sums of their counts are known
    :param committed: the checkpoint
    :param planned_end: end of the plan: all batches that are planned so far end at or before this position
    :param bound: end of the records that the source had at the last planning, up to which batches could be planned;
        None if the source reported none
    :param ends_at: end of a side partition; None for a source partition
    :param moved_at: time at which the checkpoint or the end of the plan last moved; None if not known
    :param settled: numbers of records of the batches that the checkpoint has passed
    :param settled_batches: number of batches that the checkpoint has passed
    :param rejected: number of these batches whose records all became dead letters
    :param skipped: number of these batches that were given up
    :param sent: number of these batches that were sent at most once, and of which no receipt is known
    :param batches: number of batches by state: of the batches beyond the checkpoint, and of batches that were sent at
        most once and whose receipt is not known
    """

    id: str
    kind: PartitionKind
    source: str
    generation: int
    base: Position
    low: Position
    committed: Position
    planned_end: Position
    bound: Position | None
    ends_at: Position | None
    moved_at: Moment | None
    settled: Counts
    settled_batches: int
    rejected: int
    skipped: int
    sent: int
    batches: dict[str, int]


class StoredActionRow(ApiModel):
    """A user's action that the ledger stores until a run applies it.

    An action is stored if it was requested while a run held the lease, or if only a run can apply it.

    :param number: number of the stored action
    :param kind: kind of the action
    :param actor: the user who requested the action
    :param reason: the user's reason; None without one
    :param stored_at: time at which the action was stored
    :param state: ``pending`` while it waits for a run; then ``applied``, or ``refused`` if it was not allowed any more
    :param ended_at: time at which the action was applied or refused; None while it is pending
    :param refusal: explanation of the refusal; None if the action was not refused
    """

    number: int
    kind: str
    actor: str
    reason: str | None
    stored_at: Moment
    state: Literal["pending", "applied", "refused"]
    ended_at: Moment | None
    refusal: str | None


class RefreshState(StrEnum):
    """State of a refresh whose rows have not replaced those of the target yet.

    - ``staging``: the rows of the source are being written to a staging table
    - ``staged``: all rows are staged, and the run publishes them next
    - ``held``: the publishing batch, which replaces the target's rows by the staged ones, is held until a user releases
      or skips it
    - ``released``: a user has released the publishing batch, and the next run publishes the staged rows
    """

    STAGING = "staging"
    STAGED = "staged"
    HELD = "held"
    RELEASED = "released"


class PublicationHold(ApiModel):
    """The held publishing batch of a refresh, which would replace the target's rows by the staged rows.

    :param batch: the publishing batch, which a user releases or skips
    :param reason: explanation why the batch is held; None if not known
    :param since: time at which the batch was held because the refresh has too few rows; None if it is held for another
        reason
    """

    batch: BatchName
    reason: str | None
    since: Moment | None


class Refresh(ApiModel):
    """A full refresh whose rows have not replaced those of the target yet.

    :param partition: id of the source partition
    :param generation: generation of the refresh
    :param state: state of the refresh
    :param since: when a run began the refresh; None if the audit log no longer has that event
    :param positions: number of positions to stage. A position is a page of a PostgreSQL table; another table is one
        position as a whole
    :param staged_positions: number of positions that are read completely: each row was staged, was filtered, or became
        a dead letter
    :param staged_batches: number of batches that cover these positions
    :param open_batches: number of batches that are planned, in flight or held; the publishing batch is not counted
    :param held_batches: number of these batches that are held
    :param skipped_batches: number of batches that were skipped; if there is one, the refresh is not published
    :param hold: the publishing batch if it is held; else None
    """

    partition: str
    generation: int
    state: RefreshState
    since: Moment | None
    positions: int
    staged_positions: int
    staged_batches: int
    open_batches: int
    held_batches: int
    skipped_batches: int
    hold: PublicationHold | None


class PipelineDetail(PipelineRow):
    """One pipeline: the fields of its row in the list, and its partitions, stored actions and refreshes.

    :param generation: newest generation of the pipeline
    :param settled: numbers of records of the batches that the checkpoints have passed in the present generations,
        summed over ``partition_rows``
    :param partition_rows: the partitions, source partitions first; at most 500
    :param partitions_left_out: number of further partitions
    :param actions: stored actions, newest first: all pending ones, and the newest 20 that were applied or refused
    :param refreshes: refreshes that are not published, at most 20
    """

    generation: int
    settled: Counts
    partition_rows: list[PartitionRow]
    partitions_left_out: int
    actions: list[StoredActionRow]
    refreshes: list[Refresh]


class Violation(ApiModel):
    """Violation of an invariant of the package by the ledger's data.

    :param name: name of the invariant
    :param partition: id of the partition whose data violates it
    :param message: description of the violation
    :param position: position at which the invariant is violated; None if there is no single one
    """

    name: str
    partition: str
    message: str
    position: Position | None


class Gap(Span):
    """A range of a partition that neither a batch nor a receipt covers.

    :param partition: id of the partition
    """

    partition: str


class Accounted(ApiModel):
    """Result of a quick audit: whether the ledger's data accounts for every position that was planned.

    A quick audit leaves out merged receipts, so that it does not read the whole history.

    :param ok: whether no invariant is violated and there are no gaps
    :param checked_at: time of the audit
    :param gaps: ranges that neither a batch nor a receipt covers; at most 100
    :param violations: violated invariants; at most 100
    :param partitions: number of partitions that were checked
    :param batches: number of batches that were checked
    :param receipts: number of range receipts that were checked
    """

    ok: bool
    checked_at: Moment
    gaps: list[Gap]
    violations: list[Violation]
    partitions: int
    batches: int
    receipts: int


class Declaration(ApiModel):
    """Declaration of a pipeline, as the newest run has stored it in the ledger.

    :param yaml: the declaration as YAML; None if no run has stored one
    :param document: the declaration as a JSON object; None if no run has stored one
    """

    yaml: str | None
    document: dict[str, Any] | None
