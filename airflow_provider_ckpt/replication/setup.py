"""Inputs of every use case: the pipeline, its ledger, the owner of the lease, and the opened source and sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.metric_names import NO_METER, Meter
from airflow_provider_ckpt.replication.own_output import refuse_own_output
from airflow_provider_ckpt.replication.refuse_unsupported_delivery import refuse_unsupported_delivery

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease


@dataclass(frozen=True)
class PipelineContext:
    """Configuration and dependencies of a use case: a run, or a user's action.

    :param pipeline: the pipeline
    :param ledger: the ledger, open
    :param connections: returns the connection of an id, or raises :class:`ConfigError`
    :param owner: name of the lease's owner (see ``process_lease_owner.py``)
    :param on_lease: called with each lease as soon as it is held, so that it can be released if the run is killed
    :param meter: destination of the run's metrics
    :param function: the transform's serialized Python function, if the task that runs the pipeline provides it
    """

    pipeline: Pipeline
    ledger: Ledger
    connections: Callable[[str], Connection]
    owner: str
    on_lease: Callable[[Lease], None] = lambda _: None
    meter: Meter = NO_METER
    function: bytes | None = None

    @property
    def sink_id(self) -> str:
        """Ledger id that is part of every key in the sink."""
        return self.ledger.sink_id(self.pipeline.name)

    @property
    def packed_function(self) -> bytes | None:
        """Serialized Python function of the transform, if this task provides it.

        :raises ConfigError: if the pipeline needs a function that another task provides
        """
        if self.pipeline.transform.is_task_function and self.function is None:
            raise ConfigError(
                "transform.python: task needs the function of a task, and this is not that task.",
                pipeline=self.pipeline.name,
                hint="Run the DAG whose @task.ckpt_batch defines it, or name a function that can be imported.",
            )
        return self.function

    def connection(self, name: str | None) -> Connection | None:
        """Return the connection of an id; None if the id is None or empty."""
        return self.connections(name) if name else None

    def open_sink(self) -> Sink:
        """Open the pipeline's sink, with its dead letter store."""
        pipeline = self.pipeline
        return registry.open_sink(
            pipeline,
            self.connection(pipeline.sink.connection),
            SinkContext(self.sink_id, pipeline.name),
            self.connection(pipeline.dead_letter_connection),
        )


class OpenConnectors:
    """Source and sink of a pipeline, which are opened with this object.

    :param setup: the pipeline with its ledger, connections and lease owner
    """

    def __init__(self, setup: PipelineContext) -> None:
        pipeline = setup.pipeline
        self._pipeline = pipeline
        self.source = registry.open_source(pipeline, setup.connection(pipeline.source.connection))
        self.sink = setup.open_sink()

    def check(self) -> None:
        """Check that source and sink can do what the pipeline asks for, before anything starts; change nothing.

        :raises ConfigError: if the sink cannot deliver exactly once and the pipeline requires it
        """
        refuse_unsupported_delivery(self._pipeline, self.sink)
        self.source.check()
        self.sink.check()
        self.refuse_own_output()

    def refuse_own_output(self) -> None:
        """Raise :class:`ConfigError` if the source reads what the sink writes."""
        refuse_own_output(self._pipeline, self.source, self.sink)

    def close(self) -> None:
        """Close source and sink."""
        self.source.close()
        self.sink.close()


def stored_pipeline(ledger: Ledger, name: str, *, instead: str) -> Pipeline:
    """Return a pipeline as its newest run declared it, from the ledger.

    :param ledger: the ledger
    :param name: name of the pipeline
    :param instead: option by which a user may give another declaration, for messages
    :raises ConfigError: if the ledger does not know the pipeline, or no run has stored its declaration
    """
    from airflow_provider_ckpt.config.load import build

    document = ledger.status(name)["declaration"]
    if document is None:
        raise ConfigError(
            "the ledger holds no declaration of the pipeline, because it has never run.",
            pipeline=name,
            hint=f"Name its file with {instead}.",
        )
    return build(document, f"the stored declaration of {name} ({instead} replaces it)")


def utcnow() -> datetime:
    """Return the current time in UTC, with a zone."""
    return datetime.now(UTC)
