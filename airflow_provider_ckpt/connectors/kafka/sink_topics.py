"""Create the receipts topic and the dead letter topic of a sink, and check the settings of its topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    client_config,
    create_client,
    error_codes,
    from_kafka_exception,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.connectors.kafka.receipts import NEW_TOPIC_SETTINGS, REQUIRED_SETTINGS
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType

if TYPE_CHECKING:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

DEAD_LETTER_TOPIC_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(64 << 20)}
"""Settings of a new dead letter topic: nothing expires, and records that are too large for the target fit."""

_LEADER_ELECTION = "FENCED_LEADER_EPOCH LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION UNKNOWN_LEADER_EPOCH"

_T = TypeVar("_T")

_CREATION_SECONDS = 15.0
"""Maximum time in seconds until the broker lists a topic that was created; after it, the creation counts as failed."""


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """Description of an existing topic of a sink.

    :param name: the topic's name
    :param partitions: number of partitions
    :param replicas: number of replicas of each partition
    :param settings: effective configuration
    :param id: topic id; a topic that is deleted and created again has another one
    """

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    id: str = ""

    @property
    def compacted(self) -> bool:
        """True if compaction may remove records; such a topic accepts no record without a key."""
        return "compact" in self.settings["cleanup.policy"]

    @property
    def max_bytes(self) -> int:
        """Maximum size in bytes of one of Kafka's record batches in the topic, after compression."""
        return int(self.settings["max.message.bytes"])

    def number(self, setting: str) -> int:
        """Return a numeric setting of the topic.

        :param setting: the setting's name, such as ``retention.ms``
        """
        return int(self.settings[setting])

    @property
    def weaknesses(self) -> list[str]:
        """Description of each setting that lets the topic lose acknowledged records although some brokers survive.

        Each is a part of a warning, such as ``min.insync.replicas is 1 with 3 replicas, so that …``."""
        found = []
        if self.settings.get("unclean.leader.election.enable") == "true":
            found.append("unclean.leader.election.enable is true, so that an out-of-sync replica may become leader")
        if self.replicas > 1 and self.number("min.insync.replicas") < 2:
            found.append(
                f"min.insync.replicas is 1 with {self.replicas} replicas, so that a record is acknowledged when one "
                "broker has it"
            )
        return found


class SinkTopicsClient:
    """Client that describes and creates topics of a sink.

    :param connection: the Airflow connection of the Kafka cluster
    :param pipeline: the pipeline's name, for the client id and error messages
    """

    def __init__(self, connection: Connection, pipeline: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._connection = connection
        self._pipeline = pipeline
        self._client_errors = ClientErrors()
        config = client_config(connection, f"ckpt-sink-{pipeline}", {"error_cb": self._client_errors})
        self._admin: AdminClient = create_client(AdminClient, config, connection)
        self._timeout = answer_timeout(connection)

    def find(self, name: str) -> SinkTopic | None:
        """Return the description of a topic; None if it does not exist.

        The request never makes the broker create the topic.

        :param name: the topic's name
        :raises KafkaProducerError: if the broker cannot be reached, or the user may not describe the topic
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)

        def request() -> SinkTopic | None:
            future = self._admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout)[name]
            try:
                described = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                raise
            found = self._admin.describe_configs([resource], request_timeout=self._timeout)[resource].result()
            settings = {key: str(entry.value) for key, entry in found.items()}
            partitions = described.partitions
            return SinkTopic(name, len(partitions), len(partitions[0].replicas), settings, str(described.topic_id))

        return self._request(f"describing topic {name}", request)

    def end(self, name: str) -> int:
        """Return the offset after the last record of a topic's only partition, including open transactions.

        :param name: the topic's name
        :raises KafkaProducerError: if the broker cannot be queried
        """
        return self.ends(name, 1)[0]

    def ends(self, name: str, partitions: int, *, first: bool = False) -> Mapping[int, int]:
        """Return the offset after the last record of each partition, including open transactions.

        :param name: the topic's name
        :param partitions: number of partitions
        :param first: whether to return the first offset in the log of each partition instead
        """
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = [TopicPartition(name, number) for number in range(partitions)]

        def request() -> dict[int, int]:
            futures = self._admin.list_offsets(
                dict.fromkeys(wanted, OffsetSpec.earliest() if first else OffsetSpec.latest()),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._timeout,
            )
            return {at.partition: cast("int", future.result().offset) for at, future in futures.items()}

        return self._request(f"listing the offsets of topic {name}", request)

    def newest_times(self, name: str, partitions: int) -> Mapping[int, int]:
        """Return the largest timestamp in each partition, in ms since 1970; partitions without records are left out.

        :param name: the topic's name
        :param partitions: number of partitions
        """
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = {TopicPartition(name, number): OffsetSpec.max_timestamp() for number in range(partitions)}

        def request() -> dict[int, int]:
            futures = self._admin.list_offsets(wanted, request_timeout=self._timeout)
            found = {at.partition: future.result() for at, future in futures.items()}
            return {number: int(at.timestamp) for number, at in found.items() if at.offset >= 0}

        return self._request(f"reading the newest timestamps of topic {name}", request)

    def _request(self, operation: str, step: Callable[[], _T]) -> _T:
        """Send a request, again while a partition has no leader and the client's timeout lasts, and convert errors.

        :param operation: the operation, for error messages
        :param step: function that sends the request and returns its result
        :raises KafkaProducerError: if the request fails
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return step()
            except KafkaException as error:
                if error.args[0].code() in error_codes(_LEADER_ELECTION) and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                self._admin.poll(0)  # runs the callback that collects errors
                raise from_kafka_exception(
                    error, ErrorType.KAFKA_PRODUCER, operation, self._connection, self._client_errors
                ) from None

    def ensure_receipts_topic(self, name: str, target: SinkTopic) -> SinkTopic:
        """Return the receipts topic; create it with as many replicas as the target if it does not exist.

        :param name: the topic's name
        :param target: the target topic
        :raises ConfigError: if the receipts topic has several partitions or settings that could lose receipts, or
            cannot be created
        """
        topic = self._create(name, target, NEW_TOPIC_SETTINGS)
        wrong = [
            f"{setting} is {topic.settings.get(setting)}, not {wanted}"
            for setting, wanted in REQUIRED_SETTINGS.items()
            if topic.settings.get(setting) != wanted
        ]
        if wrong:
            wanted = ",".join(f"{setting}={value}" for setting, value in REQUIRED_SETTINGS.items())
            raise ConfigError(
                f"receipts topic {name} has settings that could lose receipts: {'; '.join(wrong)}.",
                pipeline=self._pipeline,
                hint=f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {wanted}",
            )
        if topic.partitions != 1:
            raise ConfigError(
                f"receipts topic {name} has {topic.partitions} partitions; it must have one.",
                pipeline=self._pipeline,
                hint="Stop the pipeline, delete the topic if it contains no receipts yet, and run again: it is created "
                "with one partition. If it contains receipts, give the pipeline another name.",
            )
        return topic

    def ensure_dead_letter_topic(self, name: str, target: SinkTopic | None, compression: str = "none") -> SinkTopic:
        """Return the dead letter topic; create it if it does not exist.

        :param name: the topic's name
        :param target: the target topic, whose replication settings a new topic gets; None for the broker's defaults
        :param compression: compression type of a new topic; ``none`` leaves the choice to producers
        :raises ConfigError: if the topic is compacted, so that it could lose dead letters, or cannot be created
        """
        stored = {} if compression == "none" else {"compression.type": compression}
        topic = self._create(name, target, {**DEAD_LETTER_TOPIC_SETTINGS, **stored})
        if topic.compacted:
            raise ConfigError(
                f"dead letter topic {name} is compacted, so it would lose a dead letter if a later one has its key.",
                pipeline=self._pipeline,
                hint="Set its cleanup.policy to delete, or name another topic in dead_letter_queue.topic.",
            )
        return topic

    def _create(self, name: str, target: SinkTopic | None, settings: Mapping[str, str]) -> SinkTopic:
        """Return a topic, after creating it with one partition if it does not exist.

        Several processes may call this at once.

        :param name: the topic's name
        :param target: the target topic, whose replication settings a new topic gets; None for the broker's defaults
        :param settings: configuration of a new topic
        :raises ConfigError: if the topic cannot be created
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        found = self.find(name)
        if found is not None:
            return found
        config = dict(settings)
        if target is not None:
            config["min.insync.replicas"] = target.settings["min.insync.replicas"]
        new = NewTopic(name, 1, -1 if target is None else target.replicas, config=config)
        try:
            self._admin.create_topics([new], request_timeout=self._timeout)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._not_created(name, config, error) from None
        deadline = time.monotonic() + _CREATION_SECONDS
        while (found := self.find(name)) is None:
            if time.monotonic() > deadline:
                raise ConfigError(f"topic {name} was created but the broker does not list it.", pipeline=self._pipeline)
            time.sleep(0.05)
        return found

    def _not_created(self, name: str, config: Mapping[str, Any], error: KafkaException) -> Exception:
        from confluent_kafka import KafkaError

        info = to_error_info(error.args[0], ErrorType.KAFKA_PRODUCER, f"creating topic {name}", self._connection)
        if info.recoverable:
            return to_exception(info)
        if error.args[0].code() == KafkaError.TOPIC_EXCEPTION and "collides" in info.message:
            return ConfigError(
                f"topic {name} cannot be created: {info.message}",
                pipeline=self._pipeline,
                hint="Its name differs from another topic's only in dots and underscores. Choose another name.",
            )
        wanted = " ".join(f"--config {setting}={value}" for setting, value in config.items())
        return ConfigError(
            f"topic {name} does not exist and cannot be created: {info.message}",
            pipeline=self._pipeline,
            hint="Let the connection's user create it, or create it: "
            f"kafka-topics.sh --create --topic {name} --partitions 1 {wanted}",
        )
