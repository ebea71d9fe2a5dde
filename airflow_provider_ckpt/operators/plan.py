"""The task group's ``plan`` task: takes the lease, reconciles, and plans what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators.base import CkptOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptPlanOperator(CkptOperator):
    """Acquire the lease, fence, reconcile, plan. Returns ``{"epoch", "planned", "summary"}`` for the tasks after it."""

    shares_lease = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        from airflow_provider_ckpt.replication.run.acquire import acquire

        with self.setup_run(context) as setup, acquire(setup) as run:
            planned = run.plan()
            if not planned:
                run.raise_refused()
            summary = run.finish(release=False)
            self.log.info("epoch %d: %d batches to deliver", run.epoch, planned)
            return {"epoch": run.epoch, "planned": planned, "summary": summary.to_json()}
