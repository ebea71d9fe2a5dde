"""Check that Airflow takes a text for a schedule: a preset, or a cron expression as its own library reads it."""

from __future__ import annotations

_PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})


def schedule_problem(schedule: str | None) -> str | None:
    """Return a sentence that says why a DAG cannot have a schedule, None if it can.

    :param schedule: a cron expression or a preset; None and an empty one are none
    """
    from croniter import croniter  # type: ignore[import-untyped]

    if not schedule or schedule in _PRESETS or (schedule.isascii() and croniter.is_valid(schedule)):
        return None
    presets = ", ".join(sorted(_PRESETS))
    return f"dag.schedule: {schedule!r} is no schedule; write a cron expression, or one of: {presets}"
