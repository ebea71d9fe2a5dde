"""Read a source topic's metadata: its topic id, by which a recreated topic is detected, its partitions and offsets."""

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
    """Description of a topic at one time.

    :param name: the topic's name
    :param id: topic id; a topic that is deleted and created again has another one
    :param partitions: numbers of the partitions, in order
    :param readable: whether the connection's user may read the topic
    """

    name: str
    id: str
    partitions: tuple[int, ...]
    readable: bool = True

    def partition_id(self, number: int) -> str:
        """Return the id of a partition, written as in Kafka's own tools, such as ``orders-0``.

        :param number: number of the partition
        """
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

    :param connection: connection to the topic's cluster
    :param topic: the topic's name
    :param client: value of ``client.id``, which appears in the brokers' logs and metrics
    :param kind: type of the errors to raise: ``KafkaConsumer`` or ``KafkaProducer``
    """

    def __init__(self, connection: Connection, topic: str, client: str, kind: ErrorType) -> None:
        self._connection = connection
        self._topic = topic
        self._client = client
        self._kind = kind
        self._client_errors = ClientErrors()
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """Admin client of the Kafka library, created at the first use.

        :raises ConfigError: if the client does not accept the connection's settings
        """
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            config = client_config(self._connection, self._client, {"error_cb": self._client_errors})
            self._admin = create_client(AdminClient, config, self._connection)
        return self._admin

    def describe(self) -> Topic:
        """Return the present description of the topic.

        :raises ConfigError: if the topic does not exist
        :raises CkptError: if the cluster cannot be queried
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection
        from confluent_kafka.admin import AclOperation

        def request(wait: float) -> TopicDescription:
            future = self.admin.describe_topics(
                TopicCollection([self._topic]), include_authorized_operations=True, request_timeout=wait
            )
            try:
                return cast("TopicDescription", future[self._topic].result())
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                raise self._missing() from None

        found = self._request(f"describing topic {self._topic}", request)
        operations = found.authorized_operations
        return Topic(
            found.name,
            str(found.topic_id),
            tuple(sorted(partition.id for partition in found.partitions)),
            not operations or not {AclOperation.READ, AclOperation.ALL}.isdisjoint(operations),
        )

    def bounds(self, numbers: Iterable[int]) -> Mapping[int, LogOffsets]:
        """Return the first and last offsets in the logs of the given partitions, by partition number.

        :param numbers: numbers of the partitions
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

        def request(wait: float) -> list[dict[int, ListOffsetsResultInfo]]:
            requested = [
                self.admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level, request_timeout=wait)
                for spec, level in kinds
            ]
            return [{at.partition: future.result() for at, future in each.items()} for each in requested]

        starts, ends, high_watermarks = self._request(f"listing the offsets of topic {self._topic}", request)
        return {
            number: LogOffsets(
                starts[number].offset,
                end.offset,
                max(high_watermarks[number].offset, end.offset),
                None if end.leader_epoch is None or end.leader_epoch < 0 else end.leader_epoch,
            )
            for number, end in ends.items()
        }

    def compacted(self) -> bool:
        """Return whether compaction may remove records; also True if the user may not read the topic's settings."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, self._topic)

        def request(wait: float) -> bool:
            future = self.admin.describe_configs([resource], request_timeout=wait)[resource]
            try:
                return "compact" in str(future.result()["cleanup.policy"].value)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                return True

        return self._request(f"reading the configuration of topic {self._topic}", request)

    def close(self) -> None:
        """Close the connection."""
        self._admin = None
        self._client_errors.clear()

    def require_same(self, known: str | None, batch: str | None = None, requests: int = 1) -> Topic:
        """Return the topic, after checking that its id is the expected one.

        :param known: the expected id; None to accept any
        :param batch: the batch's key, for the error message
        :param requests: maximum number of requests if the cluster does not answer in time
        :raises SourceError: if the topic was deleted and created again
        :raises CkptError: as :meth:`describe` does
        """
        for left in reversed(range(requests)):
            try:
                topic = self.describe()
                break
            except KafkaConsumerError as error:
                if not (left and error.recoverable):
                    raise
        if known not in (None, topic.id):
            raise SourceError(
                f"topic {self._topic} is not the one that this pipeline reads: it was deleted and created again "
                f"(its id was {known}, and is {topic.id} now), so its offsets belong to other records.",
                batch=batch,
                hint="Declare a pipeline with a new name for the new topic.",
            )
        return topic

    def _request(self, operation: str, request: Callable[[float], T]) -> T:
        """Send a request; repeat it until the timeout while a partition has no leader, and convert errors.

        :param operation: the operation, for error messages
        :param request: function that sends the request, given its timeout in seconds
        :raises CkptError: if the request fails
        """
        from confluent_kafka import KafkaException

        self._client_errors.clear()
        wait = answer_timeout(self._connection)
        deadline = time.monotonic() + wait
        while True:
            try:
                return request(wait)
            except KafkaException as error:
                if is_leader_election(error.args[0]) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                    continue
                self.admin.poll(0)  # runs the callback that collects errors
                raise from_kafka_exception(
                    error, self._kind, operation, self._connection, self._client_errors
                ) from None

    def _missing(self) -> ConfigError:
        return ConfigError(
            f"topic {self._topic} does not exist in the cluster of connection {self._connection.id!r}.",
            hint="Create it, or correct the pipeline's topic.",
        )
