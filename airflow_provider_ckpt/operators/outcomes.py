"""The task group's last tasks: what a person is told of dead letters and of held batches, and the run's summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_ckpt.assets.pipeline import tell_outlets
from airflow_provider_ckpt.config.delivery import LetterPlace
from airflow_provider_ckpt.connectors.local.dead_letters import letters_beside
from airflow_provider_ckpt.connectors.local.filesystem import escape, local_path
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.operators._step import CkptStepOperator, newest
from airflow_provider_ckpt.operators.replicate import held_message

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.protocols import Connection


_LETTERS_TABLE = "ckpt_sink_dead_letter"
_BESIDE = {"kafka": LetterPlace.KAFKA, "postgres": LetterPlace.POSTGRES}
"""What keeps dead letters with their batch, by the sink's type; files, where it is not named."""


class CkptDeadLettersOperator(CkptStepOperator):
    """Say how many records were dead-lettered, by error type, and where they are. Returns the same."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        summary = self.previous(context)["summary"]
        pipeline = self.load_pipeline()
        with self.errors():
            where = dead_letters_at(pipeline, resolve_connection)
        self.log.warning(
            "%d records of pipeline %s were dead-lettered: %s. They are in %s",
            summary["records"]["dead_lettered"],
            pipeline.name,
            ", ".join(f"{count} {kind}" for kind, count in sorted(summary["errors"].items())) or "see their headers",
            where,
        )
        return {"dead_lettered": summary["records"]["dead_lettered"], "errors": summary["errors"], "where": where}


class CkptHoldOperator(CkptStepOperator):
    """Tell of held batches; fails where the pipeline says ``run.fail_on_hold``, since a person must decide on them."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        summary = self.previous(context)["summary"]
        pipeline = self.load_pipeline()
        message = held_message(pipeline.name, summary)
        if pipeline.run.fail_on_hold:
            raise AirflowFailException(message)
        self.log.warning(message)
        return {"held": summary["batches_by_state"].get("held", 0)}


class CkptSummaryOperator(CkptStepOperator):
    """Return the summary of the run, whatever branches were chosen; skipped where the group was skipped.

    ``outlets`` get an event when this task succeeds, with the positions that the run has reached.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        handed = self.handed_over(context)
        if not handed:
            raise AirflowSkipException("The group was skipped: no run was handed over.")
        summary: dict[str, Any] = newest(handed)["summary"]
        tell_outlets(context, summary)
        return summary


def dead_letters_at(pipeline: Pipeline, connections: Callable[[str], Connection]) -> str:
    """Where a person finds a pipeline's dead letters.

    :param connections: gives the connection of an id, which may say where relative paths start
    :raises ConfigError: if there is no such connection, or a path cannot be one
    """
    sink, queue = pipeline.sink, pipeline.dead_letter_queue
    if queue.here:
        if sink.type == "iceberg":
            return f"the JSON lines beside the location of table {sink.table}, catalog {sink.connection}"
        connection, table = sink.connection, sink.table or ""
        schema, dot, _ = table.rpartition(".")
        place, table = _BESIDE.get(sink.type, LetterPlace.FILES), f"{schema}{dot}{_LETTERS_TABLE}"
    else:
        connection, table, place = pipeline.letters_connection, queue.table, queue.sink
    if place is LetterPlace.KAFKA:
        return f"topic {queue.topic} of {queue.brokers or f'connection {connection}'}"
    if place is LetterPlace.POSTGRES:
        return f"table {table} of connection {connection}"
    root = connections(connection) if connection else None
    if queue.here:
        directory = letters_beside(local_path(str(sink.path), "sink.path", root), pipeline.name)
    else:
        directory = local_path(str(queue.path), "dead_letter_queue.path", root) / escape(pipeline.name)
    return f"the JSON lines under {directory}"
