"""``CkptReplicateOperator``: a whole run in one task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.assets.pipeline import RUNS, announce
from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators.base import CkptOperator, hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptReplicateOperator(CkptOperator):
    """Replicate whatever is new, once: lease, reconcile, plan, deliver, settle; later rounds are waited for in place.

    Returns the run's summary. Downstream tasks run when the run ended, dead letters or not. The task fails when the
    run halted, and when batches are held and the pipeline says ``run.fail_on_hold``.

    :param pipeline: path of a YAML file relative to the DAG file's folder, a dict, or a ``Pipeline`` (templated)
    :param ckpt_conn_id: the ledger's connection
    :param outlets: assets besides the pipeline's own, ``ckpt://<name>``, which gets an event where the checkpoint moved
    """

    announces = True
    operator_extra_links = (*CkptOperator.operator_extra_links, SparkLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.outlets = [*self.outlets, RUNS]

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        from airflow_provider_ckpt.replication.run.replicate import replicate

        with self.setup_run(context) as setup:
            summary = replicate(setup, self.make_engine(setup.pipeline))
            document = hand_over(context, summary.to_json())
            announce(context, document)
            if Route.HOLD in document["route"] and setup.pipeline.run.fail_on_hold:
                raise AirflowFailException(held_message(setup.pipeline.name, document))
        return document


def held_message(pipeline: str, summary: dict[str, Any]) -> str:
    """What a person is told of held batches."""
    held = summary["batches_by_state"].get("held", 0)
    return (
        f"pipeline {pipeline}: {held} batches are held; the checkpoint waits for them. "
        f"See why: airflow ckpt status {pipeline}"
    )
