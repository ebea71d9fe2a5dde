"""The task group's ``submit`` task: runs what was planned on Spark, wave by wave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptSubmitOperator(CkptStepOperator):
    """Deliver the planned batches; skipped, and no Spark started, where there are none."""

    operator_extra_links = (*CkptStepOperator.operator_extra_links, SparkLink())

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        before = self.previous(context)
        if not before["planned"]:
            raise AirflowSkipException("Nothing is new: no Spark is started.")
        with self.carry_on(context, before) as (setup, run):
            run.execute(self.make_engine(setup.pipeline), rounds=False)
            return self.report(context, run, before)
