"""Describe a pipeline with everything that a run of it needs, for this process or for one that will be killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.replication.run.summary import RunSummary


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The arguments of a run.

    :param document: the pipeline's declaration
    :param ledger: the ledger's address, for SQLAlchemy
    :param connections: by id
    """

    document: Mapping[str, Any]
    ledger: str
    connections: Mapping[str, Connection] = field(repr=False)

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        name: str = self.document["name"]
        return name

    def setup(self, ledger: Ledger, owner: str) -> PipelineContext:
        """Return the context for the use cases."""
        return PipelineContext(build(self.document), ledger, self._connection, owner)

    def run(self, spark: SparkSession, owner: str) -> RunSummary:
        """One whole run on a warm session."""
        with Ledger.open(self.ledger) as ledger:
            return replicate(self.setup(ledger, owner), SessionEngine(spark))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict that holds passwords."""
        connections = {name: connection.to_json() for name, connection in self.connections.items()}
        return {"document": dict(self.document), "ledger": self.ledger, "connections": connections}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """The run spec that :meth:`to_json` wrote."""
        connections = {name: Connection.from_json(item) for name, item in data["connections"].items()}
        return cls(data["document"], data["ledger"], connections)

    def _connection(self, name: str) -> Connection:
        if name not in self.connections:
            raise ConfigError(f"the connection {name!r} is not defined.")
        return self.connections[name]
