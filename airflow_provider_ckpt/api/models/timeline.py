"""Models of a pipeline's past: events of the audit log, and the timeline of runs, checkpoint and users' actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Moment, RunLink
from airflow_provider_ckpt.api.models.pipelines import LagPoint


class EventRow(ApiModel):
    """Event of the audit log.

    :param id: number of the event, growing
    :param at: time of the event
    :param kind: kind of the event
    :param actor: user or run that caused it
    :param run: task of a DAG run that the actor is; None for another actor
    :param epoch: epoch of the lease
    :param batch: batch that it concerns; None if it concerns none
    :param partition: partition that it concerns; None if it concerns none
    :param reason: reason that its user gave; None without one
    :param detail: details as JSON text, possibly shortened
    :param recorded_at: PostgreSQL's clock at the insertion; None on SQLite
    :param database_user: login in PostgreSQL; None on SQLite
    """

    id: int
    at: Moment
    kind: str
    actor: str | None
    run: RunLink | None
    epoch: int | None
    batch: BatchName | None
    partition: str | None
    reason: str | None
    detail: str
    recorded_at: Moment | None
    database_user: str | None


class EventPage(ApiModel):
    """Page of the audit log, newest first; ``next`` is the cursor of the next page, None on the last one."""

    items: list[EventRow]
    next: str | None


class RunBar(ApiModel):
    """Time in which a run held the lease.

    :param owner: the owner of the lease
    :param run: task of a DAG run that the owner is; None for another owner
    :param epoch: epoch of the lease
    :param started_at: when it was acquired
    :param ended_at: when it was released, taken over or broken; None while it is open
    :param end: how it ended
    """

    owner: str
    run: RunLink | None
    epoch: int
    started_at: Moment
    ended_at: Moment | None
    end: Literal["released", "taken_over", "broken", "open"]


class ActionFlag(ApiModel):
    """Action of a user in the timeline.

    :param event: number of its event
    :param at: time at which it took effect
    :param kind: kind of the action
    :param actor: the user
    :param reason: the user's reason
    """

    event: int
    at: Moment
    kind: str
    actor: str | None
    reason: str | None


class Timeline(ApiModel):
    """Runs, checkpoint and actions of a pipeline in a span of time.

    :param start: begin of the span
    :param end: end of the span
    :param history: lag and checkpoint over time, oldest first
    :param runs: times in which runs held the lease, oldest first
    :param actions: users' actions, oldest first
    :param left_out: whether older runs or actions of the span were left out, because there are more than 500
    """

    start: Moment
    end: Moment
    history: list[LagPoint] = Field(max_length=500)
    runs: list[RunBar]
    actions: list[ActionFlag]
    left_out: bool
