"""Task ``route`` of the task group: choose the tasks that follow by the outcome of the settled run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.assets.pipeline import emit_event
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.operators._branch import CkptBranchOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptRouteOperator(CkptBranchOperator):
    """Choose among the tasks ``retry``, ``dead_letters``, ``hold`` and ``done`` by the run's outcome; skip the others.

    Several tasks can be chosen, for example ``hold`` and ``dead_letters``.

    The lease is released unless ``retry`` is chosen, which continues under this lease.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param branches: for each :class:`Route` (possible outcome of a run), the id of the task that follows
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the tasks that the outcome of the run requires, such as ``retry`` or ``hold``, and skip the others.

        The task ``settle`` has stored this outcome in the summary of the run's state. The lease is released unless
        ``retry`` follows.

        :param context: the task's context
        :return: the state of the run, which is pushed to XCom for the tasks that follow
        """
        before = self.previous_state(context)
        chosen = [Route(name) for name in before["summary"]["route"]]
        with self.continue_run(context, before) as (_, run):
            state = self.push_state(context, run, before, release=Route.RETRY not in chosen)
        if Route.RETRY not in chosen:
            emit_event(context, state["summary"])
        self.branch_to(context, chosen)
        return state
