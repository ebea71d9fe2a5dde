"""Task ``retry`` of the task group: run each later round when it is due, then choose the tasks that follow.

The outcome of the run decides which tasks follow, as in the task ``route`` after the first round.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ckpt.assets.pipeline import emit_event
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators._branch import CkptBranchOperator
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.base import DEFAULT_DEFERRABLE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptRetryOperator(CkptBranchOperator):
    """Run the batches that wait for another round, settle them, release the lease, and choose the tasks that follow.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param branches: for each :class:`Route` (possible outcome of a run), the id of the task that follows; only the
        tasks of the outcomes that occurred are run
    :param deferrable: whether to wait between rounds in the triggerer instead of a worker slot; either way the lease is
        renewed. By default as Airflow's ``[operators] default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    operator_extra_links = (*CkptBranchOperator.operator_extra_links, SparkLink())

    def __init__(
        self,
        *,
        pipeline: Declaration,
        after: Sequence[str],
        branches: dict[Route, str],
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, after=after, branches=branches, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the later rounds of failed batches, choose the tasks that follow, and return the state of the run.

        :param context: the task's context
        """
        return self._run_rounds(context, self.previous_state(context))

    def execute_complete(self, context: Context, event: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        """Continue after the triggerer has waited until the next round is due, and return the state of the run.

        :param context: the task's context
        :param event: event of :class:`CkptNextRoundTrigger`
        :param before: state of the run before the wait
        :raises AirflowFailException: if another run has taken over the lease meanwhile
        """
        if "stale" in event:
            raise AirflowFailException(event["stale"])
        return self._run_rounds(context, before)

    def _run_rounds(self, context: Context, state: dict[str, Any]) -> dict[str, Any]:
        """Run the rounds that are due; then defer until the next one, or choose the tasks that follow.

        :param context: the task's context
        :param state: state of the run before these rounds
        :return: state of the run after the last round; if the task is deferred, nothing is returned
        """
        due: datetime | None = None
        with self.continue_run(context, state) as (setup, run):
            if not self._is_early(run.next_due()):
                run.execute(self.make_engine(setup.pipeline), rounds=not self.deferrable, plan_on=False)
                run.settle()
            if self.deferrable:
                due = run.next_due()
            new_state = self.push_state(context, run, state, release=due is None)
        if due is not None:
            self._wait(due, setup, new_state)
        return self._branch(context, new_state)

    def _is_early(self, due: datetime | None) -> bool:
        """Return whether to defer at once: the task is deferrable, and the next round is due in more than 10 s.

        :param due: time of the next round; None if there is no next round (the result is then False)
        """
        if not self.deferrable or due is None:
            return False
        from airflow_provider_ckpt.triggers.next_round import SHORTEST_WAIT

        return due > datetime.now(UTC) + SHORTEST_WAIT

    def _wait(self, due: datetime, setup: PipelineContext, state: dict[str, Any]) -> None:
        """Defer this task until the next round is due; the triggerer renews the lease meanwhile.

        :param due: time of the next round
        :param setup: the pipeline's setup, with the owner of the lease
        :param state: state of the run, which :meth:`execute_complete` gets back
        """
        from airflow_provider_ckpt.replication.run.lease_renewal import renewal_interval
        from airflow_provider_ckpt.triggers.next_round import CkptNextRoundTrigger

        self.log.info("the next round is due at %s", due.isoformat(timespec="seconds"))
        trigger = CkptNextRoundTrigger(
            pipeline=setup.pipeline.name,
            epoch=state["epoch"],
            owner=setup.owner,
            ckpt_conn_id=self.ckpt_conn_id,
            moment=due,
            every=renewal_interval(setup.pipeline.lease.ttl),
        )
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"before": state})

    def _branch(self, context: Context, state: dict[str, Any]) -> dict[str, Any]:
        """Emit the event of the pipeline's asset, choose the tasks that follow, and return the state of the run.

        Batches that still wait for a round, because the run's time budget is used up, are left to the next run.

        :param context: the task's context
        :param state: state of the run, whose summary names its outcomes (:class:`Route`)
        """
        emit_event(context, state["summary"])
        chosen = [Route(name) for name in state["summary"]["route"]]
        if Route.RETRY in chosen:
            self.log.warning("The time budget is used up; the next run continues with the waiting batches.")
        self.branch_to(context, [route for route in chosen if route is not Route.RETRY])
        return state
