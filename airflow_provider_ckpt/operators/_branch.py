"""Define the base class of the task group's tasks ``route`` and ``retry``, which choose the tasks that follow them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BranchMixIn, DownstreamTasksSkipped

from airflow_provider_ckpt.assets.pipeline import RUNS
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.core.routes import Route


class CkptBranchOperator(CkptStepOperator, BranchMixIn):
    """Base of the task group's tasks ``route`` and ``retry``, which choose by the run's outcome which tasks follow.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param branches: for each :class:`Route` (possible outcome of a run), the id of the task that follows
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    inherits_from_skipmixin = True
    emits_asset_events = True

    def __init__(
        self,
        *,
        pipeline: Declaration,
        after: Sequence[str],
        branches: dict[Route, str],
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, after=after, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.branches = branches
        self.outlets = [*self.outlets, RUNS]

    def branch_to(self, context: Context, routes: Iterable[Route]) -> None:
        """Run the tasks of the given routes, and skip the tasks of all other routes.

        :param context: the task's context
        :param routes: outcomes of the run, which :attr:`branches` maps to task ids
        """
        self.do_branch(context, [self.branches[route] for route in routes])

    @staticmethod
    def _set_state_to_skipped(tasks: Sequence[str | tuple[str, int]], map_index: int | None) -> None:
        """Skip tasks at once. In a mapped task group, each instance of the group skips its own tasks.

        Airflow's method leaves the skipping to the scheduler if the task group is mapped. The scheduler looks for the
        branching task's decision outside of the group (apache/airflow issue 67265), finds none, and so runs every
        branch.

        :param tasks: ids of the tasks to skip, each with its map index if it is mapped
        :param map_index: not used, since ``tasks`` contains it
        :raises DownstreamTasksSkipped: unless ``tasks`` is empty; Airflow catches it and skips the tasks
        """
        del map_index  # `tasks` contains the index of each task
        if tasks:
            raise DownstreamTasksSkipped(tasks=tasks)  # type: ignore[no-untyped-call]
