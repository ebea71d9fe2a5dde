"""Judge the health of a pipeline from its state in the ledger, and give the cause in one sentence."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_ckpt.api.models.pipeline_list import Cause, Health
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview

ORDER = {health: place for place, health in enumerate(Health)}
"""Place of each kind of health in sorted lists, from 0; the most urgent comes first."""

NEED_A_PERSON = frozenset({Health.BLOCKED, Health.LAG_GROWING, Health.DEAD_LETTERS})


def judge(found: PipelineOverview, *, is_running: bool) -> tuple[Health, Cause]:
    """Return the health of a pipeline and its cause.

    :param found: state of the pipeline
    :param is_running: whether a run holds the lease
    """
    health, text, since = _judge(found, is_running=is_running)
    blocker = found.blocker if health is Health.BLOCKED else None
    return health, Cause(
        text=text,
        since=since,
        batch=None if blocker is None else str(blocker),
        error_type=found.blocker_error if health is Health.BLOCKED else None,
        blocked_batches=found.waiting,
    )


def _judge(found: PipelineOverview, *, is_running: bool) -> tuple[Health, str, datetime | None]:
    if found.held:
        return Health.BLOCKED, _held(found), found.stalled_since
    if found.failing and not is_running:
        return Health.BLOCKED, _failing(found), found.stalled_since
    if _is_lag_growing(found, is_running=is_running):
        text = f"no checkpoint moves, and {found.lag:,} positions are waiting"
        return Health.LAG_GROWING, text, found.stalled_since
    if found.parked:
        noun = "dead letter is" if found.parked == 1 else "dead letters are"
        return Health.DEAD_LETTERS, f"{found.parked:,} {noun} parked", found.oldest_parked
    if found.phase == Phase.DRAINING.value:
        return Health.DRAINING, f"draining, {found.in_flight:,} in flight", None
    if found.phase == Phase.STOPPED.value:
        return Health.STOPPED, "stopped by a user", None
    return Health.WELL, _well(found, is_running=is_running), None


def _is_lag_growing(found: PipelineOverview, *, is_running: bool) -> bool:
    """Return whether the lag is at least as large as the planned part of it an hour ago, and no run moves a checkpoint.

    :param found: state of the pipeline
    :param is_running: whether a run holds the lease
    """
    if not found.lag or not found.earlier_lag or (is_running and found.rate):
        return False
    return found.lag >= found.earlier_lag


def _held(found: PipelineOverview) -> str:
    text = "1 batch is held" if found.held == 1 else f"{found.held:,} batches are held"
    return f"{text}: {_blocker(found)}{_waiting(found)}"


def _failing(found: PipelineOverview) -> str:
    text = "1 batch has failed" if found.failing == 1 else f"{found.failing:,} batches have failed"
    return f"{text} and no run is trying again: {_blocker(found)}{_waiting(found)}"


def _blocker(found: PipelineOverview) -> str:
    return f"{found.blocker} ({found.blocker_error})" if found.blocker_error else str(found.blocker)


def _waiting(found: PipelineOverview) -> str:
    if not found.waiting:
        return ""
    noun = "batch waits" if found.waiting == 1 else "batches wait"
    return f"; {found.waiting:,} resolved {noun} behind"


def _well(found: PipelineOverview, *, is_running: bool) -> str:
    if is_running:
        return f"running, {found.in_flight:,} in flight"
    if found.planned_at is None:
        return "has never planned anything"
    return f"{found.lag:,} positions are planned for the next run" if found.lag else "everything known is delivered"
