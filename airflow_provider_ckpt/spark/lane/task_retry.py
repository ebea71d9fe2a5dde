"""Whether Spark executes a task once more: after it lost an executor, or speculatively beside the first."""

from __future__ import annotations


def executed_before() -> bool:
    """Whether this Spark task was begun before; False outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
