"""Task ``submit`` of the task group: run the planned batches on Spark, wave by wave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptSubmitOperator(CkptStepOperator):
    """Deliver the planned batches. If there are none, the task is skipped and Spark is not started.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    operator_extra_links = (*CkptStepOperator.operator_extra_links, SparkLink())

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the planned batches on Spark, and return the state of the run.

        A batch that waits for a later round is left to the task ``retry``.

        :param context: the task's context
        :raises AirflowSkipException: if no batches are planned
        """
        before = self.previous_state(context)
        if not before["planned"]:
            raise AirflowSkipException("No batches are planned: Spark is not started.")
        with self.continue_run(context, before) as (setup, run):
            run.execute(self.make_engine(setup.pipeline), rounds=False)
            return self.push_state(context, run, before)
