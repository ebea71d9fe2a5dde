"""Support for the tests of the kafka source: topics, pipelines on them, and functions that write messages."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.reader import KafkaReader
from airflow_provider_ckpt.connectors.kafka.source import KafkaSource
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from tests.services.kafka import PASSWORD, USER, KafkaBroker

if TYPE_CHECKING:
    from confluent_kafka import Producer

CONNECTION = "stream"
EVERYTHING = 10**9


def connection_to(broker: KafkaBroker, **extra: Any) -> Connection:
    """The broker as connectors are told of it."""
    settings = {"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 5000, **extra}
    return Connection(CONNECTION, "kafka", extra=settings)


def by_sasl(broker: KafkaBroker) -> dict[str, Any]:
    """Return the extra of a connection to the listener that requires a login."""
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def pipeline(topic: str, **source: Any) -> Pipeline:
    """A pipeline that reads a topic."""
    return Pipeline.model_validate(
        {
            "name": "events",
            "source": {"type": "kafka", "connection": CONNECTION, "topic": topic, **source},
            "sink": {"type": "delta", "path": "/nowhere"},
        }
    )


def producer(broker: KafkaBroker, **settings: Any) -> Producer:
    """A producer; the caller flushes it."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 5, **settings})


def put(broker: KafkaBroker, topic: str, values: Sequence[bytes | None], partition: int = 0, **message: Any) -> None:
    """Messages without a transaction, in order.

    :param message: further arguments of each (``key``, ``headers``, ``timestamp``)
    """
    to = producer(broker, **{"enable.idempotence": True})
    for value in values:
        to.produce(topic, value, partition=partition, **message)
    assert to.flush(30) == 0


def put_raw_header(broker: KafkaBroker, topic: str, name: bytes, value: bytes) -> None:
    """A message with one header whose name may be any bytes, as producers in C and Go can send it."""
    from confluent_kafka import cimpl

    folder = Path(cimpl.__file__).parent.parent / "confluent_kafka.libs"
    client = ctypes.CDLL(str(next(folder.glob("librdkafka-*"))))
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(client, function).restype = ctypes.c_void_p
    said = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(client.rd_kafka_conf_new())
    client.rd_kafka_conf_set(settings, b"bootstrap.servers", broker.bootstrap.encode(), said, 512)
    handle = ctypes.c_void_p(client.rd_kafka_new(0, settings, said, 512))
    headers = ctypes.c_void_p(client.rd_kafka_headers_new(1))
    client.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"v", ctypes.c_ssize_t(1))
    flat: list[Any] = [1, ctypes.c_char_p(topic.encode()), 3, ctypes.c_int32(0)]  # topic, partition
    flat += [4, ctypes.c_char_p(value), ctypes.c_size_t(len(value)), 7, 2, 10, headers]  # value, copied, headers
    assert client.rd_kafka_producev(handle, *flat, 0) == 0
    assert client.rd_kafka_flush(handle, 30_000) == 0
    client.rd_kafka_destroy(handle)


def alter(broker: KafkaBroker, topic: str, settings: Mapping[str, str]) -> None:
    """Change a topic's configuration, and wait until the broker goes by it."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    deadline = time.monotonic() + 30
    while True:
        known = admin.describe_configs([asked])[asked].result(30)
        if all(known[name].value == value for name, value in settings.items()):
            return
        assert time.monotonic() < deadline, f"{topic} does not take {settings}"
        time.sleep(0.02)


@contextmanager
def transaction(broker: KafkaBroker, topic: str, values: Sequence[bytes], name: str = "test") -> Iterator[Producer]:
    """A transaction that has written its messages and is open; the test ends it."""
    to = producer(broker, **{"transactional.id": name})
    to.init_transactions(30)
    to.begin_transaction()
    for value in values:
        to.produce(topic, value, partition=0)
    assert to.flush(30) == 0
    yield to


@dataclass
class Ledger:
    """A ledger, as far as a source sees one, for the partitions that it has planned.

    :param sent: further things in the connection's extra
    """

    broker: KafkaBroker
    topic: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    planned: list[BatchTask] = field(default_factory=list)
    states: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def pipeline(self) -> Pipeline:
        """The declaration."""
        return pipeline(self.topic)

    @property
    def connection(self) -> Connection:
        """Return the connection of the pipeline."""
        return connection_to(self.broker, **self.sent)

    def source(self) -> KafkaSource:
        """The planning half."""
        return KafkaSource(self.pipeline, self.connection)

    def plan(self, number: int | None = None, most: int = EVERYTHING) -> Plan:
        """Plan what is new in every partition, and keep it."""
        with closing(self.source()) as source:
            names = [partition.id for partition in source.partitions()]
            for name in names:
                self.ends.setdefault(name, source.start(name, "earliest").position)
            todo = [RangeToPlan(name, self.ends[name]) for name in names]
            plan = source.plan(PlanRequest(todo, number, most, states=self.states))
        self.states.update(json.loads(json.dumps(plan.states)))
        for batch in plan.batches:
            assert batch.range.start == self.ends[batch.partition]
            self.ends[batch.partition] = batch.range.end
            seq = sum(task.key.partition == batch.partition for task in self.planned)
            self.planned.append(BatchTask(BatchKey(1, batch.partition, seq), batch.range, 1))
        return plan

    def rewind(self, position: int, number: int = 0) -> None:
        """Begin a new generation there, as a person does; what the source noted goes with the old one."""
        name = f"{self.topic}-{number}"
        self.ends[name] = position
        self.states.pop(name, None)

    def located(self, tasks: Sequence[BatchTask] | None = None) -> list[BatchTask]:
        """Tasks as a lane gets them; all that is planned, by partition."""
        chosen = sorted(self.planned, key=lambda task: task.key) if tasks is None else tasks
        with closing(self.source()) as source:
            return list(source.locate(chosen, ()))

    def reader(self) -> KafkaReader:
        """The reading half."""
        with closing(self.source()) as source:
            return KafkaReader(self.pipeline, self.connection, source.shape())

    def rows(self, tasks: Sequence[BatchTask] | None = None) -> list[list[dict[str, Any]]]:
        """The messages of every batch, as columns."""
        located = self.located(tasks)
        with closing(self.reader()) as reader:
            return [[row for records in reader.read(task) for row in records.to_pylist()] for task in located]

    def values(self, tasks: Sequence[BatchTask] | None = None) -> list[bytes]:
        """The value of every message."""
        return [row["value"] for batch in self.rows(tasks) for row in batch]

    def offsets(self) -> list[list[int]]:
        """The offsets that each batch yields."""
        return [[row[POSITION] for row in batch] for batch in self.rows()]


def task(topic: str, start: int, end: int, instruction: Instruction = Instruction.DELIVER) -> BatchTask:
    """A batch of partition 0, not located yet."""
    return BatchTask(BatchKey(1, f"{topic}-0", 0), Range(start, end), 1, instruction)


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that can be told apart."""
    return [b'{"id": %d}' % number for number in range(first, first + count)]
