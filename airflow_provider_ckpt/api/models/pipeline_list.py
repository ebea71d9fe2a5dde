"""Models of the list of pipelines: health, lag and lease of each pipeline.

The pipelines of each declaration of many tables, called a database, are also summed up in one row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Moment, RunLink


class Health(StrEnum):
    """Health of a pipeline; the values are in order of urgency, and the first that applies is chosen.

    - ``blocked``: a batch is held; or a batch has failed, is to be tried again, and no run holds the lease. The
      checkpoint cannot pass such a batch.
    - ``lag_growing``: the lag is at least as large as the planned part of the lag an hour ago, and no run holds the
      lease or no checkpoint has moved in the last ten minutes
    - ``dead_letters``: there are parked dead letters, which a user can replay or discard
    - ``draining``, ``stopped``: the pipeline is in this phase, because a user has drained or stopped it
    - ``well``: none of the above
    """

    BLOCKED = "blocked"
    LAG_GROWING = "lag_growing"
    DEAD_LETTERS = "dead_letters"
    DRAINING = "draining"
    STOPPED = "stopped"
    WELL = "well"


class Cause(ApiModel):
    """Explanation of the health of a pipeline.

    :param text: the explanation, as one clause in English
    :param since: for ``blocked`` and ``lag_growing``: time since which a checkpoint with batches beyond it has not
        moved, the earliest of all partitions; for ``dead_letters``: time at which the receipt of the oldest parked dead
        letter's batch was claimed; None for other kinds of health, or if the time is not known
    :param batch: for ``blocked``: the first held batch in the order of partition and number, or if none is held, the
        first whose last attempt failed; None for other kinds of health
    :param error_type: error type of this batch; None without an error
    :param blocked_batches: number of resolved batches that the checkpoints cannot pass yet, because an earlier batch of
        their partition is not resolved
    """

    text: str
    since: Moment | None
    batch: BatchName | None
    error_type: str | None
    blocked_batches: int


class LagPoint(ApiModel):
    """Planned and committed positions of a pipeline at one time, each summed up over its source partitions.

    The smallest sum of checkpoints in the same history is subtracted from both sums, so only differences have a
    meaning: ``planned - committed`` is the number of positions that were planned and not committed at that time.

    :param at: the time
    :param planned: sum of the ends of the plans
    :param committed: sum of the checkpoints
    """

    at: Moment
    planned: float
    committed: float


class Lease(ApiModel):
    """Lease of a pipeline: the right to run it, which one run at a time holds.

    :param held: whether a run holds the lease now
    :param owner: name of the owner, also of an expired lease; None if the lease was released or never acquired
    :param run: the Airflow task that owns the lease; None if no task owns it, but for example a command
    :param epoch: newest epoch; 0 if the lease was never acquired
    :param expires_at: when the lease expires unless its owner renews it; None if it was never acquired
    :param renewed_at: when the owner acquired or last renewed the lease; None without an owner
    :param seconds_left: seconds until the lease expires, by the clock of the ledger's database; 0 if no run holds it
    """

    held: bool
    owner: str | None
    run: RunLink | None
    epoch: int
    expires_at: Moment | None
    renewed_at: Moment | None
    seconds_left: float


class DatabaseRow(ApiModel):
    """A database in the list of pipelines: sums over the tables that one declaration of many tables replicates.

    Each table is a pipeline. Only tables that match the filters and that the user may see are counted.

    :param name: name of the declaration
    :param health: the most urgent health of the tables
    :param by_health: number of tables by health
    :param tables: number of tables
    :param done: number of tables whose checkpoint has reached the source's end at the last planning, and that have no
        planned, in-flight or held batch
    :param behind: number of all other tables
    :param held: number of tables with a held batch
    :param failed: number of tables with a failed batch that no run is trying again, because no run holds the lease
    :param running: number of tables whose lease a run holds
    :param dead_letters: number of parked or replaying dead letters of all tables
    :param planned_at: the earliest time of the tables' last plannings; None if a table was never planned
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
    """A pipeline in the list of pipelines.

    :param name: name of the pipeline
    :param database: name of the declaration of many tables to which the pipeline belongs; None for other pipelines
    :param health: health of the pipeline; the list begins with the most urgent
    :param needs_me: whether the pipeline needs a user's attention: its health is ``blocked``, ``lag_growing`` or
        ``dead_letters``
    :param cause: explanation of the health
    :param phase: phase of the pipeline
    :param lag: number of positions by which the source was ahead of the checkpoints at the last planning; None if no
        partition was planned, or a partition's checkpoint is ``start``
    :param lag_as_of: time of the last planning; None if the pipeline was never planned
    :param rate: positions per second by which the checkpoints moved in the last ten minutes; None if not known
    :param history: planned and committed positions in the last 24 hours, oldest first
    :param progress: fraction (0 to 1) of the present generations' positions that are committed; the whole reaches up to
        the source's end at the last planning. None if not known
    :param partitions: number of source partitions
    :param planned: number of planned batches
    :param in_flight: number of batches in flight
    :param held: number of held batches
    :param dead_letters: number of parked or replaying dead letters
    :param stored_actions: number of stored actions that no run has applied yet
    :param lease: the lease
    :param dags: ids of the DAGs that have planned the pipeline and whose runs the user may see
    :param may_act: whether the user may act on the pipeline and see the bytes of its dead letters
    :param may_delete: whether the user may also delete the pipeline or its old history
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
    """Page of the list of pipelines that the user may see, with the most urgent health first.

    :param items: the pipelines of this page
    :param next: cursor of the next page; None on the last page
    :param total: number of pipelines on all pages
    :param by_health: number of pipelines by health, counted without the filter by health
    :param databases: on the first page: the databases with pipelines that match all filters except the filter by
        health, the most urgent health first; at most 100. Empty on other pages
    :param databases_left_out: number of further databases
    :param as_of: time of the state that the page shows, by the clock of the ledger's database
    """

    items: list[PipelineRow]
    next: str | None
    total: int
    by_health: dict[Health, int]
    databases: list[DatabaseRow]
    databases_left_out: int
    as_of: Moment
