"""Two topics and a pipeline between them, for the tests with Kafka as source and sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.chaos.crash_points.run_spec import RunSpec
from tests.integration.connectors.kafka.kafka_sink_support import Stored, stored
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, put
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Copying:
    """Two topics of two partitions, and a pipeline from one to the other.

    :param ledger_dsn: of the ledger's database
    """

    broker: KafkaBroker
    source: str
    target: str
    dead_letter_topic: str
    replication: Replication
    ledger_dsn: str

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.replication.pipeline.name

    @property
    def checkpoint(self) -> int:
        """Return the checkpoint of partition 0."""
        return self.replication.ledger.partitions(self.pipeline)[f"{self.source}-0"].partition.committed

    def put(self, values: list[Any], partition: int = 0, **more: Any) -> None:
        """Messages for the source, in order."""
        put(self.broker, self.source, values, partition, **more)

    def changed(self, **parts: Any) -> Copying:
        """The same with other top-level keys of the declaration."""
        return replace(self, replication=self.replication.changed(**parts))

    def patient(self, **extra: Any) -> Copying:
        """The same with further things in the connection's extra."""
        others = {CONNECTION: connection_to(self.broker, **extra)}
        return replace(self, replication=replace(self.replication, others=others))

    def delivered(self, isolation: str = "read_committed") -> list[bytes | None]:
        """The target's values, partition by partition."""
        return [record.value for record in stored(self.broker, self.target, isolation)]

    def run_spec(self) -> RunSpec:
        """The same for a process of its own."""
        return RunSpec(self.replication.document, sqlalchemy_url(self.ledger_dsn), self.replication.others)

    def receipts(self) -> list[Receipt]:
        """All that the sink holds."""
        with closing(self.replication.setup().open_sink()) as sink:
            return list(sink.receipts({}))

    def dead_letters(self) -> list[Stored]:
        """Return the content of the dead letter topic."""
        return stored(self.broker, self.dead_letter_topic)


@contextmanager
def make_copying(
    spark: SparkSession,
    broker: KafkaBroker,
    server: PostgresServer,
    *,
    ledger_dsn: str = "",
    topic: Mapping[str, str] | None = None,
) -> Iterator[Copying]:
    """A pipeline that cuts batches of ten.

    :param ledger_dsn: of an empty ledger; one is made by default
    :param topic: the target's configuration
    """
    source, target = broker.new_topic(2), broker.new_topic(2, topic)
    document = {
        "name": f"copy-{target}",
        "source": {"type": "kafka", "connection": CONNECTION, "topic": source},
        "sink": {"type": "kafka", "connection": CONNECTION, "topic": target},
        "dead_letter_queue": {"topic": f"letters-{target}"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 10},
    }
    ledger_dsn = ledger_dsn or new_ledger_database(server)
    with Ledger.open(sqlalchemy_url(ledger_dsn)) as ledger:
        others = {CONNECTION: connection_to(broker)}
        replication = Replication(spark, ledger, server.new_database(), document, others)
        yield Copying(broker, source, target, f"letters-{target}", replication, ledger_dsn)
