"""The job: everything that Spark needs to know of a run, sent once before the first wave. Holds secrets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.protocols import Committer, Connection, Reader, Shape, Sink, SinkContext, Writer
from airflow_provider_ckpt.spark.dead_letters.replay_reader import LetterReader
from airflow_provider_ckpt.spark.transform.python_function import Function, named, unpack

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Job:
    """One run, as lanes and the driver see it.

    :param document: the pipeline's declaration (:meth:`Pipeline.document`)
    :param context: whose receipts the sink writes
    :param shape: what the source's readers yield
    :param connections: by connection id, passwords included; never logged
    :param function: the transform's function where it is a task's own, as ``function.pack`` gave it
    """

    document: Mapping[str, Any]
    context: SinkContext
    shape: Shape
    connections: Mapping[str, Connection] = field(repr=False)
    function: bytes | None = field(default=None, repr=False)

    @property
    def pipeline(self) -> Pipeline:
        """The declaration as a model."""
        from airflow_provider_ckpt.config.pipeline import Pipeline

        return Pipeline.model_validate(self.document)

    def reader(self) -> Reader:
        """A reader for one lane."""
        pipeline = self.pipeline
        reader = registry.open_reader(pipeline, self._connection(pipeline.source.connection), self.shape)
        return LetterReader(reader, self._sink, self.shape)

    def writer(self) -> Writer:
        """A writer for one lane."""
        pipeline = self.pipeline
        letters = self._connection(pipeline.letters_connection)
        return registry.open_writer(pipeline, self._connection(pipeline.sink.connection), self.context, letters)

    def committer(self) -> Committer | None:
        """The second phase of a two-phase sink, for the driver."""
        pipeline = self.pipeline
        return registry.open_committer(pipeline, self._connection(pipeline.sink.connection), self.context)

    def transform_function(self) -> Function | None:
        """The transform's function, None if it has none.

        :raises InvalidTransformError: if it cannot be imported
        """
        path = self.pipeline.transform.python
        if self.function is not None:
            return unpack(self.function)
        return named(path) if path else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict that holds the passwords: for a file of mode 0600 only."""
        return {
            "document": dict(self.document),
            "context": [self.context.ledger, self.context.pipeline, self.context.epoch],
            "shape": {"raw": self.shape.raw, "columns": [list(column) for column in self.shape.columns]},
            "connections": {name: connection.to_json() for name, connection in self.connections.items()},
            "function": base64.b64encode(self.function).decode() if self.function is not None else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """The job that :meth:`to_json` wrote."""
        columns = [(str(name), str(kind)) for name, kind in data["shape"]["columns"]]
        return cls(
            data["document"],
            SinkContext(*data["context"]),
            Shape(data["shape"]["raw"], columns),
            {name: Connection.from_json(item) for name, item in data["connections"].items()},
            base64.b64decode(data["function"]) if data["function"] is not None else None,
        )

    def _sink(self) -> Sink:
        pipeline = self.pipeline
        letters = self._connection(pipeline.letters_connection)
        return registry.open_sink(pipeline, self._connection(pipeline.sink.connection), self.context, letters)

    def _connection(self, name: str | None) -> Connection | None:
        return self.connections[name] if name else None
