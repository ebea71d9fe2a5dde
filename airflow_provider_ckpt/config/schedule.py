"""Model of the optional section ``dag`` of a declaration: the DAG that a DAG factory creates from the file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section, WholeNumber

_TASK_ARGUMENTS = {
    "owner": "owner",
    "task_retries": "retries",
    "pool": "pool",
    "pool_slots": "pool_slots",
    "priority_weight": "priority_weight",
    "queue": "queue",
    "execution_timeout": "execution_timeout",
}
"""Keys of the section ``dag`` that are arguments of tasks, with Airflow's names of these arguments."""

_MAX_NAME = 256
"""Maximum number of characters in the name of a pool or queue in Airflow's database."""

_MAX_INTEGER = 2**31 - 1
"""Largest integer in Airflow's database."""


class DagShape(StrEnum):
    """Structure of a pipeline's DAG: the whole run in one task, or in a task group with a task for each step."""

    OPERATOR = "operator"
    TASK_GROUP = "task_group"


def _with_time_zone(found: datetime) -> datetime:
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    try:
        found.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the years 1 to 9999 in UTC") from None
    return found


def _uri(text: str) -> str:
    if "://" not in text:
        raise ValueError("an asset is named by its URI, such as ckpt://orders")
    return text


AwareDatetime = Annotated[datetime, AfterValidator(_with_time_zone)]
"""A point in time; a value without a time zone is taken as UTC."""

AssetUri = Annotated[str, AfterValidator(_uri)]


class WorkSchedule(Section):
    """Schedule that starts a run when enough new records wait in the source; :class:`CkptWorkTrigger` implements it.

    :param at_least: number of new positions with which a run starts at once
    :param longest_wait: maximum time that a new record waits; after it, a run starts even for fewer new positions
    :param check_every: time between two checks of the source, at least one second
    """

    at_least: WholeNumber = Field(default=1, ge=1)
    longest_wait: Duration = timedelta(hours=1)
    check_every: Duration = timedelta(minutes=1)

    @model_validator(mode="after")
    def _unhurried(self) -> Self:
        if self.check_every < timedelta(seconds=1):
            raise ValueError("check_every must be at least 1s: each check queries the source")
        return self


class DagSection(Section):
    """DAG of a pipeline; at most one of ``schedule``, ``every``, ``assets`` and ``work`` is given.

    With none of them the DAG has no schedule.

    :param dag_id: the DAG's id; None for the pipeline's name
    :param description: the DAG's description
    :param schedule: a cron expression or a preset such as ``@hourly``
    :param every: a fixed interval
    :param assets: URIs of assets; a run starts when all of them have an event
    :param work: schedule by the number of new records
    :param start_date: date before which no run is scheduled; None for no such date
    :param tags: the DAG's tags
    :param owner: the tasks' owner
    :param task_retries: Airflow's retries of a task, for infrastructure failures; retries of batches follow the
        delivery policy
    :param pool: Airflow pool that limits how many tasks run at once; None for Airflow's default pool
    :param pool_slots: slots of the pool that each task occupies
    :param priority_weight: weight by which Airflow's scheduler orders waiting tasks
    :param queue: queue of the CeleryExecutor, which chooses the workers; None for the configured default
    :param execution_timeout: time after which Airflow ends a task that has not ended; None for no such time
    :param paused: whether the DAG is paused when it is created; None for Airflow's configured default
    :param shape: ``operator``, the whole run as one task, or ``task_group``
    :param deferrable: for ``task_group``: whether the task waits for a retry round in the triggerer instead of a worker
        slot; None for Airflow's configured default
    """

    dag_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    description: str | None = None
    schedule: str | None = None
    every: Duration | None = None
    assets: tuple[AssetUri, ...] = ()
    work: WorkSchedule | None = None
    start_date: AwareDatetime | None = None
    tags: tuple[str, ...] = ("ckpt",)
    owner: str = "airflow"
    task_retries: WholeNumber = Field(default=0, ge=0)
    pool: str | None = Field(default=None, min_length=1, max_length=_MAX_NAME)
    pool_slots: WholeNumber = Field(default=1, ge=1, le=_MAX_INTEGER)
    priority_weight: WholeNumber = Field(default=1, ge=1, le=_MAX_INTEGER)
    queue: str | None = Field(default=None, min_length=1, max_length=_MAX_NAME)
    execution_timeout: Duration | None = None
    paused: bool | None = None
    shape: DagShape = DagShape.OPERATOR
    deferrable: bool | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.every is not None and not self.every:
            raise ValueError("every must be longer than 0s; leave it out for no schedule")
        if self.execution_timeout is not None and not self.execution_timeout:
            raise ValueError("execution_timeout must be longer than 0s; leave it out for no limit")
        given = [name for name in ("schedule", "every", "assets", "work") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"has {' and '.join(given)}; give only one schedule")
        return self

    @property
    def task_arguments(self) -> dict[str, Any]:
        """Arguments of the DAG's tasks that the file gives, under Airflow's names."""
        given = ((name, getattr(self, key)) for key, name in _TASK_ARGUMENTS.items() if key in self.model_fields_set)
        return {name: value for name, value in given if value is not None}
