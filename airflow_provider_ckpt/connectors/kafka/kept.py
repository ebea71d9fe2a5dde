"""Reads dead letters back from their topic, which other pipelines may share.

The topic has no index: to find some letters, all of it is read, up to the end that it had when that was asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.content import DeadLetter, KeptLetter
from airflow_provider_ckpt.connectors.kafka.common import Noticed, client_config, error_info, opened, raised
from airflow_provider_ckpt.connectors.kafka.letters import LETTER
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, KafkaProducerError
from airflow_provider_ckpt.core.letters import AttemptKey

if TYPE_CHECKING:
    from confluent_kafka import Message

_POLL = 0.5


class KeptLetters:
    """The dead letters of one ledger's pipeline in a topic."""

    def __init__(self, connection: Connection, topic: str, context: SinkContext) -> None:
        self._connection = connection
        self._topic = topic
        self._context = context

    def of(
        self, wanted: Collection[AttemptKey], ends: Mapping[int, int], seconds: float
    ) -> Mapping[AttemptKey, list[KeptLetter]]:
        """The letters of some attempts, by position.

        :param ends: of each partition of the topic, where to stop
        :param seconds: how long the broker may take for a step, and a transaction may stay open
        :raises KafkaProducerError: if it takes longer, or cannot be reached
        """
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        noticed = Noticed()
        settings = {
            "group.id": "ckpt",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "error_cb": noticed,
        }
        asked = frozenset(wanted)
        found: dict[AttemptKey, dict[int, KeptLetter]] = {}
        left = dict(ends)
        config = client_config(self._connection, "ckpt-letters", settings)
        with closing(opened(Consumer, config, self._connection)) as consumer:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in ends])
            deadline = time.monotonic() + seconds
            while left:
                message = consumer.poll(_POLL)
                if message is None:
                    if time.monotonic() > deadline:
                        raise self._silence(noticed)
                    continue
                error = message.error()
                if error is None:
                    deadline = time.monotonic() + seconds
                    self._take(message, asked, found)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise raised(error_info(error, ErrorType.KAFKA_PRODUCER, self._doing, self._connection))
                elif (message.offset() or 0) >= left.get(message.partition() or 0, 0):
                    left.pop(message.partition() or 0, None)
        return {
            source: [kept for _, kept in sorted(letters.items(), key=lambda item: (item[1].letter.position, item[0]))]
            for source, letters in found.items()
        }

    def _take(
        self, message: Message, wanted: Collection[AttemptKey], found: dict[AttemptKey, dict[int, KeptLetter]]
    ) -> None:
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        if not headers or headers[-1][0] != LETTER:
            return
        said = json.loads(headers[-1][1] or b"")
        source = AttemptKey(BatchKey.from_json(said["batch"]), said["attempt"], said["epoch"])
        mine = (said["pipeline"], said["ledger"]) == (self._context.pipeline, self._context.ledger)
        if not mine or source not in wanted:
            return
        error = ErrorInfo(ErrorType(said["error_type"]), said["error"], sqlstate=said["sqlstate"])
        own, rest = headers[: said["own_headers"]], headers[said["own_headers"] : -1]
        texts = {name: (value or b"").decode("utf-8", "replace") for name, value in rest}
        letter = DeadLetter(said["position"], _bytes(message.key()), _bytes(message.value()), error, texts, own)
        at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        letters = found.setdefault(source, {})
        number = said.get("number")
        letters[len(letters) if number is None else number] = KeptLetter(source, letter, at)

    @property
    def _doing(self) -> str:
        return f"reading dead letter topic {self._topic}"

    def _silence(self, noticed: Noticed) -> Exception:
        """Why no further record came: nobody answers, or somebody's transaction is open."""
        telling = noticed.telling()
        if telling is not None:
            return raised(error_info(telling, ErrorType.KAFKA_PRODUCER, self._doing, self._connection))
        return KafkaProducerError(
            f"a transaction stays open in dead letter topic {self._topic}; what lies behind it cannot be read.",
            recoverable=True,
            hint="It ends with its producer's transaction.timeout.ms at the latest; try again then.",
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
