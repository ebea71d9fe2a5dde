"""The task group's last tasks: what a person is told of dead letters and of held batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.connectors.files.letters import letters_beside
from airflow_provider_ckpt.operators.replicate import held_message
from airflow_provider_ckpt.operators.step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.pipeline import Pipeline


_LETTERS_TABLE = "ckpt_sink_dead_letter"


class CkptDeadLettersOperator(CkptStepOperator):
    """Say how many records were dead-lettered, by error type, and where they are. Returns the same."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        summary = self.previous(context)["summary"]
        pipeline = self.load_pipeline()
        where = dead_letters_at(pipeline)
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


def dead_letters_at(pipeline: Pipeline) -> str:
    """Where a person finds a pipeline's dead letters."""
    sink = pipeline.sink
    if sink.table is not None:
        schema, dot, _ = sink.table.rpartition(".")
        return f"table {schema}{dot}{_LETTERS_TABLE} of connection {sink.connection}"
    return f"the JSON lines under {letters_beside(Path(str(sink.path)), pipeline.name)}"
