"""Models of the list of pipelines and of one pipeline."""

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
    RunLink,
    Span,
)


class Health(StrEnum):
    """Health of a pipeline, the most urgent first.

    - ``blocked``: a batch is held, or failed in a run that has ended, so that the checkpoint cannot pass it
    - ``lag_growing``: no run makes progress, and more is planned and not committed than an hour ago
    - ``dead_letters``: dead letters are parked
    - ``draining`` and ``stopped``: a user has drained or stopped the pipeline
    - ``well``: nothing of this
    """

    BLOCKED = "blocked"
    LAG_GROWING = "lag_growing"
    DEAD_LETTERS = "dead_letters"
    DRAINING = "draining"
    STOPPED = "stopped"
    WELL = "well"


class Cause(ApiModel):
    """Cause of the health of a pipeline.

    :param text: one sentence
    :param since: time since which this is so; None if it is not known
    :param batch: first batch that blocks a checkpoint; None if none does
    :param error_type: error type of that batch; None without an error
    :param blocked_batches: number of resolved batches beyond the checkpoints, which wait for an unresolved one
    """

    text: str
    since: Moment | None
    batch: BatchName | None
    error_type: str | None
    blocked_batches: int


class LagPoint(ApiModel):
    """Sums of a pipeline's positions at a time, relative to the checkpoint at the first point: lag is the difference.

    :param at: the time
    :param planned: end of what was planned
    :param committed: checkpoint
    """

    at: Moment
    planned: float
    committed: float


class Lease(ApiModel):
    """Lease of a pipeline, which the run that works on it holds.

    :param held: whether a run holds it now
    :param owner: name of the owner, also after the lease has expired; None if it was released
    :param run: task of a DAG run that the owner is; None for a process of the command line
    :param epoch: newest epoch
    :param expires_at: when the lease ends unless it is renewed; None if it was never acquired
    :param renewed_at: when the owner acquired or last renewed it; None if nobody owns it
    :param seconds_left: seconds until then by the database's clock; 0 if the lease is not held
    """

    held: bool
    owner: str | None
    run: RunLink | None
    epoch: int
    expires_at: Moment | None
    renewed_at: Moment | None
    seconds_left: float


class DatabaseRow(ApiModel):
    """A database in the list: sums of those of its tables that match the filters and that the user may see.

    :param name: name of the declaration of many tables
    :param health: the most urgent health of its tables
    :param by_health: number of tables by health
    :param tables: number of tables
    :param done: number of tables of which everything that was known at the last planning is delivered
    :param behind: number of the other tables
    :param held: number of tables with a held batch
    :param failed: number of tables with a batch that has failed and that no run is trying again
    :param running: number of tables that a run is working on
    :param dead_letters: number of dead letters that are parked or replaying
    :param planned_at: the earliest of the last plannings of its tables; None if one was never planned
    """

    name: str
    health: Health
    by_health: dict[Health, int]
    tables: int
    done: int
    behind: int
    held: int
    failed: int
    running: int
    dead_letters: int
    planned_at: Moment | None


class PipelineRow(ApiModel):
    """A pipeline in the list.

    :param name: name of the pipeline
    :param database: name of the declaration of many tables to which it belongs; None if it belongs to none
    :param health: its health, by which the list is sorted
    :param needs_me: whether a person should look at it: blocked, lag growing or dead letters
    :param cause: why it has this health
    :param phase: running, draining or stopped
    :param lag: number of positions that the source had beyond the checkpoints at the last planning; None if nothing was
        planned yet
    :param lag_as_of: time of the last planning
    :param rate: positions a second by which the checkpoints moved in the last ten minutes; None if unknown
    :param history: lag of the last 24 hours, oldest first
    :param progress: checkpoint as a fraction of what the source had at the last planning; None if unknown
    :param partitions: number of source partitions
    :param planned: number of batches that are planned
    :param in_flight: number of batches that are in flight
    :param held: number of batches that are held
    :param dead_letters: number of dead letters that are parked or replaying
    :param stored_actions: number of users' actions that wait for a run
    :param lease: the lease
    :param dags: ids of the DAGs that have run the pipeline and that the user may see
    :param may_act: whether the user may act on the pipeline and see the bytes of its dead letters
    :param may_delete: whether they may also delete the pipeline or its old history
    """

    name: str
    database: str | None
    health: Health
    needs_me: bool
    cause: Cause
    phase: Literal["running", "draining", "stopped"]
    lag: int | None
    lag_as_of: Moment | None
    rate: float | None
    history: list[LagPoint]
    progress: float | None
    partitions: int
    planned: int
    in_flight: int
    held: int
    dead_letters: int
    stored_actions: int
    lease: Lease
    dags: list[str]
    may_act: bool
    may_delete: bool


class PipelineList(ApiModel):
    """Page of the pipelines that the user may see, those that need a person first.

    :param items: the pipelines
    :param next: cursor of the next page; None on the last one
    :param total: number of pipelines that match the filters
    :param by_health: number of them by health, for all pages
    :param databases: on the first page, the databases of the pipelines that match the filters except that of health,
        those that need a person first
    :param databases_left_out: number of databases beyond the first hundred
    :param as_of: time of the snapshot by the database's clock
    """

    items: list[PipelineRow]
    next: str | None
    total: int
    by_health: dict[Health, int]
    databases: list[DatabaseRow]
    databases_left_out: int
    as_of: Moment


class PartitionRow(ApiModel):
    """Partition of a pipeline with its positions.

    :param id: id of the partition
    :param kind: ``source``, or the purpose of a side partition
    :param source: id of the source partition whose records it reads
    :param generation: generation, which grows with each rewind
    :param base: first position of the generation
    :param low: low watermark: below it, receipts are merged and only sums remain
    :param committed: checkpoint
    :param planned_end: end of what is planned
    :param bound: end of what the source had at the last planning; None if the source told none
    :param ends_at: end of a side partition; None for a source partition
    :param moved_at: time at which checkpoint or plan last moved
    :param settled: records of the batches that the checkpoint has passed in this generation
    :param settled_batches: number of these batches
    :param rejected: number of these whose records all became dead letters
    :param skipped: number of these that were given up
    :param sent: number of these that were sent at most once, without a known receipt
    :param batches: number of batches beyond the checkpoint by state
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
    """User's action that was stored for a run.

    :param number: number of the stored action
    :param kind: kind of the action
    :param actor: the user who requested it
    :param reason: the user's reason
    :param stored_at: time at which it was stored
    :param state: pending, or what the run that applied it found
    :param ended_at: time at which a run applied or refused it; None while it is pending
    :param refusal: why it was refused; None if it was not
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
    """State of a refresh that is not published.

    - ``staging``: not all rows are staged
    - ``staged``: all rows are staged, and the run publishes them next
    - ``held``: the batch that publishes waits for a user
    - ``released``: a user has released that batch, and the next run publishes it
    """

    STAGING = "staging"
    STAGED = "staged"
    HELD = "held"
    RELEASED = "released"


class PublicationHold(ApiModel):
    """Batch that publishes a refresh and is held.

    :param batch: the batch, which a user releases or skips
    :param reason: why it is held; None if that is not known
    :param since: when it was held because of the number of rows; None if it is held for another reason
    """

    batch: BatchName
    reason: str | None
    since: Moment | None


class Refresh(ApiModel):
    """Full refresh that is not published.

    :param partition: id of the source partition
    :param generation: its generation
    :param state: its state
    :param since: when a run began it; None if the audit log no longer has that event
    :param positions: number of positions of the rows: of a PostgreSQL table its pages, of other tables one
    :param staged_positions: number of positions that are staged, or whose records are dead letters
    :param staged_batches: number of batches of these positions
    :param open_batches: number of batches of rows that are planned, in flight or held
    :param held_batches: number of these that are held
    :param skipped_batches: number of batches of rows that were skipped, so that the refresh is not published
    :param hold: the batch that publishes, if it is held; else None
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
    """One pipeline in full.

    :param generation: newest generation
    :param settled: records of all batches below the checkpoints, in the partitions' present generations
    :param partition_rows: partitions, source partitions first; at most 500
    :param partitions_left_out: number of partitions beyond those
    :param actions: stored actions: all that are pending, and the newest 20 that ended
    :param refreshes: refreshes that are not published, at most 20
    """

    generation: int
    settled: Counts
    partition_rows: list[PartitionRow]
    partitions_left_out: int
    actions: list[StoredActionRow]
    refreshes: list[Refresh]


class Violation(ApiModel):
    """Violation of a named invariant."""

    name: str
    partition: str
    message: str
    position: Position | None


class Gap(Span):
    """Range of a partition that no batch or receipt accounts for."""

    partition: str


class Accounted(ApiModel):
    """Result of a quick audit: whether every position is accounted for.

    :param ok: whether no invariant is violated and no position is unaccounted for
    :param checked_at: time of the audit
    :param gaps: ranges that nothing accounts for; at most 100
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
    """Declaration of a pipeline that its newest run stored.

    :param yaml: the declaration as YAML; None if no run has stored one
    :param document: the same as JSON
    """

    yaml: str | None
    document: dict[str, Any] | None


class Me(ApiModel):
    """The user, and what they may do on all pipelines.

    :param id: id of the user
    :param name: name of the user, which the audit log stores as ``airflow:NAME``
    :param administrator: whether the user may see and act on pipelines that no DAG has run
    """

    id: str
    name: str
    administrator: bool
