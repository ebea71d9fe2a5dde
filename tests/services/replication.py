"""Run pipelines in the test's own process, with a ledger, connections, and a warm Spark."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.setup import PipelineContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline

DATABASE = "orders_db"
"""The id of the one connection."""


def connection_to(dsn: str, name: str = DATABASE) -> Connection:
    """A database as connectors are told of it."""
    parts = urlsplit(dsn)
    return Connection(
        name, "postgres", parts.hostname, parts.port, parts.username, parts.password, parts.path.removeprefix("/")
    )


def orders_pipeline(name: str = "orders", *, source: str = "orders", target: str = "target") -> dict[str, Any]:
    """The declaration of a PostgreSQL to PostgreSQL pipeline; tests add keys to it."""
    return {
        "name": name,
        "source": {"type": "postgres", "connection": DATABASE, "table": source, "cursor": "id", "close_wait": "5s"},
        "sink": {"type": "postgres", "connection": DATABASE, "table": target},
        "delivery": "exactly_once",
    }


@dataclass
class Replication:
    """One pipeline that a test runs again and again.

    :param document: its declaration; :meth:`changed` makes a variant
    :param dsn: of the database that its connection leads to; a test may point it elsewhere
    :param others: further connections, by id
    """

    spark: SparkSession
    ledger: Ledger
    dsn: str
    document: Mapping[str, Any]
    others: Mapping[str, Connection] = field(default_factory=dict)

    @property
    def pipeline(self) -> Pipeline:
        """The declaration as a model."""
        return build(self.document)

    def changed(self, **parts: Any) -> Replication:
        """The same with other top-level keys; a mapping is merged into the one that is there."""
        document = copy.deepcopy(dict(self.document))
        for key, value in parts.items():
            document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
        return replace(self, document=document)

    def setup(self, owner: str | None = None) -> PipelineContext:
        """Return the context for the use cases, for an owner of its own."""
        return PipelineContext(self.pipeline, self.ledger, self._connections(), owner or f"test:{uuid.uuid4().hex}")

    def run(self) -> RunSummary:
        """One whole run on the warm session."""
        return replicate(self.setup(), SessionEngine(self.spark))

    def _connections(self) -> Callable[[str], Connection]:
        def resolve(name: str) -> Connection:
            if name in self.others:
                return self.others[name]
            if name != DATABASE:
                raise ConfigError(f"the connection {name!r} is not defined.")
            return connection_to(self.dsn)

        return resolve
