"""The optional ``dag`` section: the DAG that a factory makes of a pipeline's file, see ``dag_factories/``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from airflow_provider_ckpt.config.delivery import Part, Whole
from airflow_provider_ckpt.config.durations import Duration


class Shape(StrEnum):
    """What the DAG consists of."""

    OPERATOR = "operator"
    TASK_GROUP = "task_group"


def _aware(found: datetime) -> datetime:
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


Moment = Annotated[datetime, AfterValidator(_aware)]
"""A point in time; UTC if it names no zone."""

AssetUri = Annotated[str, AfterValidator(_uri)]


class Work(Part):
    """A schedule by what there is to do, see :class:`CkptWorkTrigger`.

    :param at_least: run as soon as so many positions are new
    :param longest_wait: nothing waits longer than this, however little it is
    :param look_every: how often to look; at least a second
    """

    at_least: Whole = Field(default=1, ge=1)
    longest_wait: Duration = timedelta(hours=1)
    look_every: Duration = timedelta(minutes=1)

    @model_validator(mode="after")
    def _unhurried(self) -> Self:
        if self.look_every < timedelta(seconds=1):
            raise ValueError("look_every must be at least 1s: each look asks the source")
        return self


class Dag(Part):
    """How a pipeline's DAG is made; of ``schedule``, ``every``, ``assets`` and ``work`` one at most.

    :param dag_id: the pipeline's name by default
    :param schedule: a cron expression or a preset such as ``@hourly``
    :param every: a fixed interval
    :param assets: URIs of assets; all of them must have an event
    :param work: when there is enough to do
    :param start_date: nothing is scheduled before it
    :param owner: the tasks' owner
    :param task_retries: for infrastructure; batches are tried again as the delivery policy says
    :param paused: whether it is paused when Airflow first sees it; else as Airflow is configured
    :param shape: ``operator``, the whole run as one task, or ``task_group``
    :param deferrable: of ``task_group``: whether later rounds are waited for in the triggerer
    """

    dag_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    description: str | None = None
    schedule: str | None = None
    every: Duration | None = None
    assets: tuple[AssetUri, ...] = ()
    work: Work | None = None
    start_date: Moment | None = None
    tags: tuple[str, ...] = ("ckpt",)
    owner: str = "airflow"
    task_retries: Whole = Field(default=0, ge=0)
    paused: bool | None = None
    shape: Shape = Shape.OPERATOR
    deferrable: bool | None = None

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if self.every is not None and not self.every:
            raise ValueError("every must be longer than 0s; leave it out for no schedule")
        given = [name for name in ("schedule", "every", "assets", "work") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"has {' and '.join(given)}; one of them says when to run")
        return self
