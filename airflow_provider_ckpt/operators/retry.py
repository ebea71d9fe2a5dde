"""The task group's ``retry`` task: the later rounds, each when it is due, and then the same branches again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.assets.pipeline import announce
from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators._branch import CkptBranchOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.setup import Setup


class CkptRetryOperator(CkptBranchOperator):
    """Run the batches that wait for another round, settle, release the lease, and branch on the run as a whole.

    :param branches: the task id of each route that may follow
    :param deferrable: wait in the triggerer between rounds, not in a worker's slot; the lease is renewed either way
    """

    operator_extra_links = (*CkptBranchOperator.operator_extra_links, SparkLink())

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        return self._pass(context, self.previous(context))

    def execute_complete(self, context: Context, event: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        """Go on after the triggerer has waited for the next round.

        :raises AirflowFailException: if another run took over meanwhile
        """
        if "stale" in event:
            raise AirflowFailException(event["stale"])
        return self._pass(context, before)

    def _pass(self, context: Context, before: dict[str, Any]) -> dict[str, Any]:
        due: datetime | None = None
        with self.carry_on(context, before) as (setup, run):
            if not self._is_early(run.next_due()):
                run.execute(self.make_engine(setup.pipeline), rounds=not self.deferrable, plan_on=False)
                run.settle()
            if self.deferrable:
                due = run.next_due()
            handed = self.report(context, run, before, release=due is None)
        if due is not None:
            self._wait(due, setup, handed)
        return self._branch(context, handed)

    def _is_early(self, due: datetime | None) -> bool:
        """Whether a round is too far away to wait for it in place."""
        if not self.deferrable or due is None:
            return False
        from airflow_provider_ckpt.triggers.next_round import SHORTEST_WAIT

        return due > datetime.now(UTC) + SHORTEST_WAIT

    def _wait(self, due: datetime, setup: Setup, handed: dict[str, Any]) -> None:
        from airflow_provider_ckpt.triggers.next_round import CkptNextRoundTrigger

        self.log.info("the next round is due at %s", due.isoformat(timespec="seconds"))
        trigger = CkptNextRoundTrigger(
            pipeline=setup.pipeline.name,
            epoch=handed["epoch"],
            owner=setup.owner,
            ckpt_conn_id=self.ckpt_conn_id,
            moment=due,
            every=setup.pipeline.lease.ttl.total_seconds() / 3,
        )
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"before": handed})

    def _branch(self, context: Context, handed: dict[str, Any]) -> dict[str, Any]:
        announce(context, handed["summary"])
        chosen = [Route(name) for name in handed["summary"]["route"]]
        if Route.RETRY in chosen:
            self.log.warning("The time budget is over; what still waits for another round is left to the next run.")
        self.choose(context, [route for route in chosen if route is not Route.RETRY])
        return handed
