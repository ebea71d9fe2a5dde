"""First task of the task group, ``plan``: acquire the lease, reconcile, and plan the new records as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators.base import CkptOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptPlanOperator(CkptOperator):
    """Acquire the lease, fence the sink, reconcile the ledger with the sink's receipts, and plan batches.

    The task returns the state of the run for the tasks after it, see :class:`CkptStepOperator`.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    shares_lease = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Acquire the lease, reconcile and plan batches; return the state of the run.

        :param context: the task's context
        :return: ``{"epoch": int, "try_number": int, "planned": int, "summary": {...}}``
        """
        from airflow_provider_ckpt.replication.run.acquire import acquire

        with self.setup_run(context) as setup, acquire(setup) as run:
            planned = run.prepare()
            if not planned:
                run.planning.raise_refused()
            summary = run.finish(release=False)
            self.log.info("epoch %d: %d batches to deliver", run.epoch, planned)
            try_number = context["ti"].try_number
            return {"epoch": run.epoch, "try_number": try_number, "planned": planned, "summary": summary.to_json()}
