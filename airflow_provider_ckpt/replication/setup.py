"""What every use case starts from: the pipeline, its ledger, who runs it, and its source and sink, opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.protocols import Connection, Sink, SinkContext
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.metrics import NO_METER, Meter
from airflow_provider_ckpt.replication.own_output import refuse_own_output

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease


@dataclass(frozen=True)
class Setup:
    """What every use case needs.

    :param connections: gives the connection of an id, or raises :class:`ConfigError`
    :param owner: the lease's owner (see ``owner.py``)
    :param on_lease: told of each lease as soon as it is held, for whoever must let go of it when the run is killed
    :param meter: where the run's numbers go
    :param function: the transform's own function, packed, where the task that runs the pipeline gives it
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
        """The ledger id that is part of every key in the sink."""
        return self.ledger.sink_id(self.pipeline.name)

    @property
    def packed_function(self) -> bytes | None:
        """The transform's own function, where this task gives it.

        :raises ConfigError: if the pipeline needs one that only its own task can give, and this is another
        """
        if self.pipeline.transform.of_task and self.function is None:
            raise ConfigError(
                "transform.python: task says that its function is a task's own, and this is not that task.",
                pipeline=self.pipeline.name,
                hint="Run the DAG whose @task.ckpt_batch has it, or name a function that can be imported.",
            )
        return self.function

    def connection(self, name: str | None) -> Connection | None:
        """The connection of an id, None for None."""
        return self.connections(name) if name else None

    def open_sink(self) -> Sink:
        """The pipeline's sink, with the place of its dead letters."""
        pipeline = self.pipeline
        return registry.open_sink(
            pipeline,
            self.connection(pipeline.sink.connection),
            SinkContext(self.sink_id, pipeline.name),
            self.connection(pipeline.letters_connection),
        )


class Opened:
    """The source and sink of a pipeline, open and checked."""

    def __init__(self, setup: Setup) -> None:
        pipeline = setup.pipeline
        self._pipeline = pipeline
        self.source = registry.open_source(pipeline, setup.connection(pipeline.source.connection))
        self.sink = setup.open_sink()

    def check(self, *, create: bool = True) -> None:
        """Fail before anything is begun if either cannot work, or not as it is asked to.

        :param create: whether the sink makes what it keeps its bookkeeping in
        """
        if self._pipeline.delivery == "exactly_once" and not self.sink.exactly_once:
            raise ConfigError(
                f"delivery: exactly_once is more than a {self._pipeline.sink.type} sink can promise.",
                hint="Write at_least_once, or name another sink.",
            )
        self.source.check()
        self.sink.check(create=create)
        self.refuse_own_output()

    def refuse_own_output(self) -> None:
        """Fail if the source reads what the sink writes."""
        refuse_own_output(self._pipeline, self.source, self.sink)

    def close(self) -> None:
        """Let go of connections."""
        self.source.close()
        self.sink.close()


def stored_pipeline(ledger: Ledger, name: str, *, instead: str) -> Pipeline:
    """A pipeline as its newest run declared it.

    :param instead: where a person may give another declaration, for messages
    :raises ConfigError: if the ledger does not know it, or no run has got that far
    """
    from airflow_provider_ckpt.config.load import build

    document = ledger.status(name)["declaration"]
    if document is None:
        raise ConfigError(
            "the ledger holds no declaration: it never ran.", pipeline=name, hint=f"Name its file with {instead}."
        )
    return build(document, f"the stored declaration of {name} ({instead} replaces it)")


def utcnow() -> datetime:
    """The time, aware, UTC."""
    return datetime.now(UTC)
