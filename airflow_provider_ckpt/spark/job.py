"""Description of a run (class ``Job``), which the lease holder sends to Spark once, before the first wave.

It contains passwords.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.installed_connectors import use_paths
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape
from airflow_provider_ckpt.spark.dead_letters.replay_reader import ReplayReader
from airflow_provider_ckpt.spark.transform.python_function import Function, import_function, unpack
from airflow_provider_ckpt.spark.transform.user_modules import imported_for

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.raw_copy_protocol import RawCopy
    from airflow_provider_ckpt.core.wave_messages import Wave


@dataclass(frozen=True, slots=True)
class Job:
    """Description of one run for the driver and the lanes.

    :param document: the pipeline's declaration (:meth:`Pipeline.document`)
    :param context: identity of the run: ledger, pipeline and epoch. Ledger and pipeline are part of the keys under
        which the sink stores receipts
    :param shape: names and types of the columns that the source's readers yield
    :param connections: connections by connection id, passwords included; never logged
    :param function: the transform's Python function as :func:`~.python_function.pack` serialized it, if the operator
        was given a function; None if the declaration names it, or if there is none
    :param connectors: import path of each of the pipeline's connectors, by type, so that executors need not search the
        installed distributions for them
    """

    document: Mapping[str, Any]
    context: SinkContext
    shape: RecordShape
    connections: Mapping[str, Connection] = field(repr=False)
    function: bytes | None = field(default=None, repr=False)
    connectors: Mapping[str, str] = field(default_factory=dict)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline's declaration, parsed from ``document``."""
        from airflow_provider_ckpt.config.pipeline import Pipeline

        use_paths(self.connectors)
        return Pipeline.model_validate(self.document)

    def reader(self) -> Reader:
        """Open a reader for one lane.

        It reads the source and, for batches that replay dead letters, the sink's dead letters.
        """
        pipeline = self.pipeline
        reader = registry.open_reader(pipeline, self._connection(pipeline.source.connection), self.shape)
        return ReplayReader(reader, self._sink, self.shape)

    def writer(self) -> Writer:
        """Open a writer to the sink and its dead letter store for one lane."""
        pipeline = self.pipeline
        dead_letters = self._connection(pipeline.dead_letter_connection)
        return registry.open_writer(pipeline, self._connection(pipeline.sink.connection), self.context, dead_letters)

    def raw_copy(self) -> RawCopy | None:
        """Create an object that copies a lane's rows from source to sink as bytes, without decoding them into records.

        Return None if source, sink or transform need decoded records.
        """
        pipeline = self.pipeline
        source, sink = self._connection(pipeline.source.connection), self._connection(pipeline.sink.connection)
        return registry.open_raw_copy(pipeline, source, sink, self.context, self.shape)

    def committer(self) -> Committer | None:
        """Open the committer for the batches that lanes staged; None if the sink does not commit in two phases."""
        pipeline = self.pipeline
        return registry.open_committer(pipeline, self._connection(pipeline.sink.connection), self.context)

    def transform_function(self) -> Function | None:
        """Return the transform's Python function, or None if the transform has none.

        :raises InvalidTransformError: if the function cannot be imported
        """
        path = self.pipeline.transform.python
        if self.function is None and path is None:
            return None
        with imported_for((self.context.ledger, self.context.pipeline, self.context.epoch)):
            if self.function is not None:
                return unpack(self.function)
            assert path is not None
            return import_function(path)

    def of_wave(self, wave: Wave) -> Job:
        """Return this job with the source columns of a wave, which may be of another schema version.

        :param wave: the wave, with the columns with which its batches were planned; without any, the job is returned
            unchanged
        """
        return self if wave.shape is None else replace(self, shape=RecordShape.from_json(wave.shape))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict. It contains the passwords: write it to files of mode 0600 only."""
        return {
            "document": dict(self.document),
            "context": [self.context.ledger, self.context.pipeline, self.context.epoch],
            "shape": self.shape.to_json(),
            "connections": {name: connection.to_json() for name, connection in self.connections.items()},
            "function": base64.b64encode(self.function).decode() if self.function is not None else None,
            "connectors": dict(self.connectors),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """Create the job from the dict that :meth:`to_json` returned."""
        return cls(
            data["document"],
            SinkContext(*data["context"]),
            RecordShape.from_json(data["shape"]),
            {name: Connection.from_json(item) for name, item in data["connections"].items()},
            base64.b64decode(data["function"]) if data["function"] is not None else None,
            data["connectors"],
        )

    def _sink(self) -> Sink:
        """Open the sink, from which a reader reads the dead letters of a replay."""
        pipeline = self.pipeline
        dead_letters = self._connection(pipeline.dead_letter_connection)
        return registry.open_sink(pipeline, self._connection(pipeline.sink.connection), self.context, dead_letters)

    def _connection(self, name: str | None) -> Connection | None:
        return self.connections[name] if name else None
