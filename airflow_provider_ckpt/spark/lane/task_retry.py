"""Detect that Spark runs a task again: as a retry after a failure, or speculatively beside the first attempt."""

from __future__ import annotations


def is_task_retry() -> bool:
    """Return whether an earlier attempt of the current Spark task exists; False outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
