"""Read a topic's metadata from the broker: its id, its partitions, and the offsets in each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    client_config,
    create_client,
    from_kafka_exception,
    is_leader_election,
)
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, KafkaConsumerError, SourceError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, TopicDescription

T = TypeVar("T")

_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Topic:
    """Current state of a topic.

    :param name: the topic's name
    :param id: topic id, which a topic that is deleted and created again does not get again
    :param partitions: numbers of the partitions, in order
    :param readable: whether the connection's user may read the topic
    """

    name: str
    id: str
    partitions: tuple[int, ...]
    readable: bool = True

    def partition_id(self, number: int) -> str:
        """Return a partition's name, as Kafka's own tools write it."""
        return f"{self.name}-{number}"


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Offsets in the log of a partition.

    :param start: first offset in the log
    :param end: last stable offset: no transaction below it is open, and no further record can appear below it
    :param log_end: high watermark, the end of the log including open transactions
    :param leader_epoch: leader epoch of the partition; None if the broker does not report it
    """

    start: int
    end: int
    log_end: int
    leader_epoch: int | None = None


class TopicClient:
    """Client for the metadata of one topic, over one open connection.

    :param connection: of the topic's cluster
    :param topic: the topic's name
    :param client: value of client.id, which brokers show
    :param kind: ``KafkaConsumer`` or ``KafkaProducer``, the type of its errors
    """

    def __init__(self, connection: Connection, topic: str, client: str, kind: ErrorType) -> None:
        self._connection = connection
        self._topic = topic
        self._client = client
        self._kind = kind
        self._noticed = ClientErrors()
        self._open: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """Admin client, which is created at the first use.

        :raises ConfigError: if the connection does not configure one
        """
        if self._open is None:
            from confluent_kafka.admin import AdminClient

            config = client_config(self._connection, self._client, {"error_cb": self._noticed})
            self._open = create_client(AdminClient, config, self._connection)
        return self._open

    def describe(self) -> Topic:
        """Return the topic.

        :raises ConfigError: if it does not exist
        :raises CkptError: if the cluster cannot be queried
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection
        from confluent_kafka.admin import AclOperation

        def question(wait: float) -> TopicDescription:
            asked = self.admin.describe_topics(
                TopicCollection([self._topic]), include_authorized_operations=True, request_timeout=wait
            )
            try:
                return cast("TopicDescription", asked[self._topic].result())
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                raise self._missing() from None

        found = self._answer(f"describing topic {self._topic}", question)
        operations = found.authorized_operations
        return Topic(
            found.name,
            str(found.topic_id),
            tuple(sorted(partition.id for partition in found.partitions)),
            not operations or not {AclOperation.READ, AclOperation.ALL}.isdisjoint(operations),
        )

    def bounds(self, numbers: Iterable[int]) -> Mapping[int, LogOffsets]:
        """Return the offsets in some partitions, by partition number.

        :raises CkptError: if the cluster cannot be queried, or a partition does not exist any more
        """
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = [TopicPartition(self._topic, number) for number in numbers]
        if not wanted:
            return {}

        kinds = (
            (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
            (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )

        def question(wait: float) -> list[dict[int, ListOffsetsResultInfo]]:
            asked = [
                self.admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level, request_timeout=wait)
                for spec, level in kinds
            ]
            return [{at.partition: said.result() for at, said in each.items()} for each in asked]

        starts, ends, tops = self._answer(f"listing the offsets of topic {self._topic}", question)
        return {
            number: LogOffsets(
                starts[number].offset,
                end.offset,
                max(tops[number].offset, end.offset),
                None if end.leader_epoch is None or end.leader_epoch < 0 else end.leader_epoch,
            )
            for number, end in ends.items()
        }

    def compacted(self) -> bool:
        """Return whether compaction may remove records; True if the user may not read the topic's configuration."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, self._topic)

        def question(wait: float) -> bool:
            asked = self.admin.describe_configs([resource], request_timeout=wait)[resource]
            try:
                return "compact" in str(asked.result()["cleanup.policy"].value)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                return True

        return self._answer(f"reading the configuration of topic {self._topic}", question)

    def close(self) -> None:
        """Close the connection."""
        self._open = None
        self._noticed.clear()

    def same(self, known: str | None, batch: str | None = None, tries: int = 1) -> Topic:
        """Return the topic if its id has not changed.

        :param known: the expected id; None to accept any
        :param batch: the batch's key, for the error message
        :param tries: number of requests to a cluster that does not answer in time
        :raises SourceError: if the topic was deleted and created again
        """
        for left in reversed(range(tries)):
            try:
                topic = self.describe()
                break
            except KafkaConsumerError as error:
                if not (left and error.recoverable):
                    raise
        if known not in (None, topic.id):
            raise SourceError(
                f"topic {self._topic} is not the one that this pipeline reads: it was deleted and created again "
                f"(its id was {known}, and is {topic.id} now), so its offsets mean other records.",
                batch=batch,
                hint="Declare a pipeline of a new name for the new topic.",
            )
        return topic

    def _answer(self, doing: str, question: Callable[[float], T]) -> T:
        """Run a request; retry it until the timeout while a partition has no leader, and convert errors.

        :param doing: the operation, for error messages
        :param question: sends the request, given its timeout in seconds
        """
        from confluent_kafka import KafkaException

        self._noticed.clear()
        wait = answer_timeout(self._connection)
        deadline = time.monotonic() + wait
        while True:
            try:
                return question(wait)
            except KafkaException as error:
                if is_leader_election(error.args[0]) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                    continue
                self.admin.poll(0)  # runs the callback that collects errors
                raise from_kafka_exception(error, self._kind, doing, self._connection, self._noticed) from None

    def _missing(self) -> ConfigError:
        return ConfigError(
            f"topic {self._topic} does not exist in the cluster of connection {self._connection.id!r}.",
            hint="Create it, or correct the pipeline's topic.",
        )
