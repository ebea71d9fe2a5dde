"""What every use case starts from: the pipeline, its ledger, who runs it, and its source and sink, opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.protocols import Connection, Sink, SinkContext

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.records import Lease


@dataclass(frozen=True)
class Setup:
    """What every use case needs.

    :param connections: gives the connection of an id, or raises :class:`ConfigError`
    :param owner: the lease's owner (see ``owner.py``)
    :param on_lease: told of each lease as soon as it is held, for whoever must let go of it when the run is killed
    """

    pipeline: Pipeline
    ledger: Ledger
    connections: Callable[[str], Connection]
    owner: str
    on_lease: Callable[[Lease], None] = lambda _: None

    @property
    def sink_id(self) -> str:
        """The ledger id that is part of every key in the sink."""
        return self.ledger.sink_id(self.pipeline.name)

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
        self.source = registry.open_source(pipeline, setup.connection(pipeline.source.connection))
        self.sink = setup.open_sink()

    def check(self) -> None:
        """Fail before anything is begun if either cannot work."""
        self.source.check()
        self.sink.check()

    def close(self) -> None:
        """Let go of connections."""
        self.source.close()
        self.sink.close()


def utcnow() -> datetime:
    """The time, aware, UTC."""
    return datetime.now(UTC)
