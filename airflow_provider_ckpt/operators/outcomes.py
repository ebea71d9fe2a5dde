"""Define the last tasks of the task group: they report dead letters and held batches, and return the run's summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_provider_ckpt.assets.pipeline import update_outlet_events
from airflow_provider_ckpt.config.installed_connectors import find_connector
from airflow_provider_ckpt.connectors.registry import load
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.operators._step import CkptStepOperator, newest_state
from airflow_provider_ckpt.operators.replicate import held_message

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection


class CkptDeadLettersOperator(CkptStepOperator):
    """Report the records that became dead letters in the run: their number by error type, and where they are stored.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return ``{"dead_lettered", "errors", "where"}``: number of dead letters, number by error type, and place.

        :param context: the task's context
        """
        summary = self.previous_state(context)["summary"]
        pipeline = self.load_pipeline()
        with self.translate_errors():
            where = describe_dead_letter_location(pipeline, resolve_connection)
        self.log.warning(
            "%d records of pipeline %s were dead-lettered: %s. They are in %s",
            summary["records"]["dead_lettered"],
            pipeline.name,
            ", ".join(f"{count} {kind}" for kind, count in sorted(summary["errors"].items())) or "see their headers",
            where,
        )
        return {"dead_lettered": summary["records"]["dead_lettered"], "errors": summary["errors"], "where": where}


class CkptHoldOperator(CkptStepOperator):
    """Log and return the number of batches that the run left held; fail if ``run.fail_on_hold`` is set.

    A held batch waits for a user to release or skip it.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Log the number of held batches, and return it as ``{"held": number}``.

        :param context: the task's context
        :raises AirflowFailException: if the pipeline sets ``run.fail_on_hold``
        """
        summary = self.previous_state(context)["summary"]
        pipeline = self.load_pipeline()
        message = held_message(pipeline.name, summary)
        if pipeline.run.fail_on_hold:
            raise AirflowFailException(message)
        self.log.warning(message)
        return {"held": summary["batches_by_state"].get("held", 0)}


class CkptSummaryOperator(CkptStepOperator):
    """Return the summary of the run, whichever branches were chosen.

    When this task succeeds, the assets given as ``outlets`` get an event with the positions that the run has reached.
    If the whole task group was skipped, this task is skipped too.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one, see :class:`CkptStepOperator`
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the run's summary.

        :param context: the task's context
        :raises AirflowSkipException: if no task before this one returned the state of a run
        """
        states = self.previous_states(context)
        if not states:
            raise AirflowSkipException("The task group was skipped: none of its tasks returned the state of a run.")
        summary: dict[str, Any] = newest_state(states)["summary"]
        update_outlet_events(context, summary)
        return summary


def describe_dead_letter_location(pipeline: Pipeline, connections: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages, such as ``topic orders-dlq of connection k``.

    :param pipeline: the pipeline's declaration
    :param connections: function that returns the connection with a given id; it may name the folder from which relative
        paths start
    :raises ConfigError: if a connection is not defined, or a path is invalid
    """
    if pipeline.dead_letter_queue.in_other_store:
        store = find_connector(pipeline.dead_letter_queue.sink).dead_letter_store
        place = store.place if store else None
    else:
        sink = find_connector(pipeline.sink.type).sink
        place = sink.dead_letter_place if sink else None
    if place is None:
        return f"the {pipeline.sink.type} sink, {pipeline.sink.place}"
    return cast("str", load(place)(pipeline, connections))
