"""Detect Spark task retries and speculative attempts."""

from __future__ import annotations


def is_task_retry() -> bool:
    """Return whether Spark runs this task again, after an earlier attempt of the same task; False outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
