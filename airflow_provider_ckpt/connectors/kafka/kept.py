"""Reads dead letters back from their topic, which other pipelines may share.

The topic has no index: to find some letters, all of it is read, up to the end that it had when that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.content import DeadLetter, KeptLetter
from airflow_provider_ckpt.connectors.kafka.committed import committed
from airflow_provider_ckpt.connectors.kafka.letters import LETTER
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.letters import AttemptKey

if TYPE_CHECKING:
    from confluent_kafka import Message


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
        asked = frozenset(wanted)
        found: dict[AttemptKey, dict[int, KeptLetter]] = {}
        doing = f"reading dead letter topic {self._topic}"
        for messages in committed(self._connection, self._topic, ends, seconds, doing=doing):
            for message in messages:
                self._take(message, asked, found)
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


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
