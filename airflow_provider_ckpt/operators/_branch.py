"""What ``route`` and ``retry`` share: they end the run's work, tell of it, and choose among the leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BranchMixIn
from airflow.sdk.exceptions import DownstreamTasksSkipped

from airflow_provider_ckpt.assets.pipeline import RUNS
from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.core.policy import Route


class CkptBranchOperator(CkptStepOperator, BranchMixIn):
    """Base of the steps that branch.

    :param branches: the task id of each route
    """

    inherits_from_skipmixin = True
    announces = True

    def __init__(self, *, branches: dict[Route, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.branches = branches
        self.outlets = [*self.outlets, RUNS]

    def choose(self, context: Context, routes: Iterable[Route]) -> None:
        """Follow some routes; the tasks of the others are skipped."""
        self.do_branch(context, [self.branches[route] for route in routes])

    @staticmethod
    def _set_state_to_skipped(tasks: Sequence[str | tuple[str, int]], map_index: int | None) -> None:
        """Skip now, inside an expanded task group too, each member for itself.

        There Airflow leaves it to the scheduler, which looks for the decision of a task outside of the group
        (apache/airflow issue 67265), and would run every leaf.
        """
        del map_index  # each task is named with its own
        if tasks:
            raise DownstreamTasksSkipped(tasks=tasks)  # type: ignore[no-untyped-call]
