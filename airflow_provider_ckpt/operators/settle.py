"""Task ``settle`` of the task group: update the ledger from the sink's receipts, whether or not ``submit`` ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptSettleOperator(CkptStepOperator):
    """Settle the batches that the task ``submit`` left unsettled, by their receipts in the sink; move the checkpoint.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Settle the open batches by the sink's receipts, and return the run's state for the next task of the group.

        :param context: the task's context
        """
        before = self.previous_state(context)
        with self.continue_run(context, before) as (_, run):
            run.settle()
            return self.push_state(context, run, before)
