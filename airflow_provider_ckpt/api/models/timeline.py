"""Models of a pipeline's past: events of the audit log, and the timeline of runs, checkpoint and users' actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Moment, RunLink
from airflow_provider_ckpt.api.models.pipeline_list import LagPoint


class EventRow(ApiModel):
    """An event of the audit log.

    :param id: id of the event; newer events have greater ids
    :param at: time of the event
    :param kind: kind of the event, such as ``planned`` or ``rewind``
    :param actor: the user or the owner of the lease who caused the event; None if not known
    :param run: the Airflow task that caused the event; None if no task did, but for example a user
    :param epoch: epoch of the lease at the time of the event; None without one
    :param batch: name of the batch that the event concerns; None if it concerns no single batch
    :param partition: id of the partition that the event concerns; None if it concerns no single partition
    :param reason: the user's reason; None without one
    :param detail: details of the event as JSON text; if it was shortened, it ends in an ellipsis
    :param recorded_at: time at which PostgreSQL inserted the event; None if the ledger is an SQLite file
    :param database_user: PostgreSQL login that inserted the event; None if the ledger is an SQLite file
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
    """Page of the audit log of a pipeline, newest first.

    :param items: the events of this page; may be empty although there is a next page
    :param next: cursor of the next page; None on the last page
    """

    items: list[EventRow]
    next: str | None


class RunBar(ApiModel):
    """A period in which one owner held the lease, shown as a bar of the timeline.

    :param owner: owner of the lease
    :param run: the Airflow task that owned the lease; None if no task did, but for example a command
    :param epoch: epoch of the lease
    :param started_at: when the lease was acquired
    :param ended_at: when the lease was released, taken over or broken; None if it did not end within the timeline
    :param end: ``released``: by its owner; ``taken_over``: acquired anew, under a higher epoch; ``broken``: by a user;
        ``open``: not ended within the timeline
    """

    owner: str
    run: RunLink | None
    epoch: int
    started_at: Moment
    ended_at: Moment | None
    end: Literal["released", "taken_over", "broken", "open"]


class ActionFlag(ApiModel):
    """A user's action that was applied or refused, shown as a flag of the timeline.

    :param event: id of the action's event in the audit log
    :param at: time of the event
    :param kind: kind of the event: usually the kind of the action; ``action_refused`` if a run refused the action
    :param actor: the user; None if the event names none
    :param reason: the user's reason; None without one
    """

    event: int
    at: Moment
    kind: str
    actor: str | None
    reason: str | None


class Timeline(ApiModel):
    """Timeline of a pipeline: its leases, users' actions and planned and committed positions in a period.

    :param start: start of the period
    :param end: end of the period
    :param history: planned and committed positions at 200 evenly spaced times of the period, oldest first; times at
        which the pipeline had no checkpoint are left out
    :param runs: leases that were acquired in the period, oldest first
    :param actions: users' actions in the period, oldest first
    :param left_out: whether the oldest leases and actions were left out, because the period has more than 2,000 events
        of leases and actions
    """

    start: Moment
    end: Moment
    history: list[LagPoint] = Field(max_length=500)
    runs: list[RunBar]
    actions: list[ActionFlag]
    left_out: bool
