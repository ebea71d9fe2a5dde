"""Check that Airflow accepts a text as a DAG's schedule: a preset, or a cron expression.

Cron expressions are checked by the library that Airflow itself uses.
"""

from __future__ import annotations

_PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})


def schedule_problem(schedule: str | None) -> str | None:
    """Return an error message if a text cannot be a DAG's schedule; None if it can, or if there is no text.

    :param schedule: a cron expression or a preset such as ``@daily``; None for no schedule
    """
    from croniter import croniter  # type: ignore[import-untyped]

    if not schedule or schedule in _PRESETS or (schedule.isascii() and croniter.is_valid(schedule)):
        return None
    presets = ", ".join(sorted(_PRESETS))
    return f"dag.schedule: {schedule!r} is not a schedule; write a cron expression, or one of: {presets}"
