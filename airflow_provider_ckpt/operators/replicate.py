"""``CkptReplicateOperator``: execute a whole run in one task, from acquiring the lease to settling the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ckpt.assets.pipeline import RUNS, emit_event
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.base import CkptOperator, pushed_on_failure

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptReplicateOperator(CkptOperator):
    """Replicate all new records of a pipeline in one run: acquire the lease, reconcile, plan, deliver, settle.

    The task occupies its worker while it waits for later rounds of failed batches. It returns the run's summary, and
    succeeds even if records were dead-lettered. It fails if the run halted, or if batches are held and the pipeline
    sets ``run.fail_on_hold``.

    :param pipeline: declaration of the pipeline (templated): path of a YAML file relative to the DAG file's folder, a
        dict, or a ``Pipeline``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``. Assets given as ``outlets`` get an event whenever the task
        succeeds; the pipeline's own asset ``ckpt://<name>`` gets an event only if the checkpoint moved
    """

    emits_asset_events = True
    operator_extra_links = (*CkptOperator.operator_extra_links, SparkLink())

    def __init__(self, *, pipeline: Declaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.outlets = [*self.outlets, RUNS]

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the replication and return the run's summary.

        :param context: the task's context
        :raises AirflowFailException: if the run halted, or if batches are held and the pipeline sets
            ``run.fail_on_hold``
        :raises CkptTaskError: if the run failed and another try may help
        """
        from airflow_provider_ckpt.replication.run.replicate import replicate

        with self.setup_run(context) as setup:
            document = replicate(setup, self.make_engine(setup.pipeline)).to_json()
            with pushed_on_failure(context, document):
                emit_event(context, document, of_this_task=True)
                if Route.HOLD in document["route"] and setup.pipeline.run.fail_on_hold:
                    raise AirflowFailException(held_message(setup.pipeline.name, document))
        return document


def held_message(pipeline: str, summary: dict[str, Any]) -> str:
    """Return a message, for the log or an error, with the number of held batches and the command that shows why.

    :param pipeline: name of the pipeline
    :param summary: summary of the run, as its task returns it
    """
    count = summary["batches_by_state"].get("held", 0)
    return (
        f"pipeline {pipeline}: {count} batches are held; the checkpoint waits for them. "
        f"See why: airflow ckpt status {pipeline}"
    )
