"""Read the dead letters of one pipeline from a dead letter topic, and ignore forged ones.

The topic has no index, so it is read from its beginning to given end offsets. Other pipelines and other programs may
write to it: a message that is not a dead letter of this ledger and pipeline is ignored, and so is one whose signature
is wrong (see ``dead_letters.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.committed_reader import read_committed
from airflow_provider_ckpt.connectors.kafka.dead_letters import DEAD_LETTER_HEADER, IdentifyingHeader, seal
from airflow_provider_ckpt.connectors.kafka.deserialize import HEADER_NAME_ERRORS, read_headers
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)


class DeadLetterReader:
    """Reader of the dead letters of one pipeline and ledger in a topic.

    :param connection: connection to the topic's cluster
    :param topic: the topic's name
    :param context: ids of the ledger and the pipeline
    """

    def __init__(self, connection: Connection, topic: str, context: SinkContext) -> None:
        self._connection = connection
        self._topic = topic
        self._context = context

    def read(
        self,
        wanted: Mapping[AttemptKey, bytes | None],
        ends: Mapping[int, int],
        seconds: float,
    ) -> Mapping[AttemptKey, list[StoredDeadLetter]]:
        """Return the dead letters of the given attempts, in order of their positions.

        An attempt without dead letters in the topic is left out. A forged or malformed dead letter is ignored, and a
        warning counts them.

        :param wanted: the attempts, each with the secret that signs its dead letters; None if they are not signed
        :param ends: end offset of each partition of the topic
        :param seconds: maximum time in seconds without a new message; an open transaction can cause such a wait
        :raises KafkaProducerError: if no message arrives for that time, or the broker cannot be reached
        """
        found: dict[AttemptKey, dict[int, StoredDeadLetter]] = {}
        malformed: list[str] = []
        operation = f"reading dead letter topic {self._topic}"
        for messages in read_committed(self._connection, self._topic, ends, seconds, operation=operation):
            for message in messages:
                try:
                    self._add(message, wanted, found)
                except ValueError as error:
                    malformed.append(f"partition {message.partition()}, offset {message.offset()}: {error}")
        if malformed:
            log.warning(
                "%s: %d messages of dead letter topic %s have a header %s that this provider did not write; they are "
                "ignored. Another program writes to the topic. The first of them: %s.",
                self._context.pipeline,
                len(malformed),
                self._topic,
                DEAD_LETTER_HEADER,
                malformed[0],
            )
        return {
            source: [
                stored
                for _, stored in sorted(dead_letters.items(), key=lambda item: (item[1].dead_letter.position, item[0]))
            ]
            for source, dead_letters in found.items()
        }

    def _add(
        self,
        message: Message,
        wanted: Mapping[AttemptKey, bytes | None],
        found: dict[AttemptKey, dict[int, StoredDeadLetter]],
    ) -> None:
        """Add a message to the dead letters found so far, if it is a dead letter of one of the wanted attempts.

        :param message: the message
        :param wanted: the attempts, each with the secret that signs its dead letters; None if they are not signed
        :param found: the dead letters found so far, by attempt and by their number in it
        :raises ValueError: if the message has the header of a dead letter, but is not a valid dead letter
        """
        try:
            headers = cast("list[tuple[str, bytes | None]]", read_headers(message) or [])
        except HEADER_NAME_ERRORS:
            raise ValueError("a header's name is not UTF-8") from None
        if not headers or headers[-1][0] != DEAD_LETTER_HEADER:
            return
        header = IdentifyingHeader.parse(headers[-1][1], self._context, len(headers) - 1)
        if header is None or header.source not in wanted:
            return
        own, rest = headers[: header.own_headers], headers[header.own_headers : -1]
        secret = wanted[header.source]
        key, value = _to_bytes(message.key()), _to_bytes(message.value())
        if secret is not None and header.document.get("seal") != seal(
            secret, header.document, key, value, headers[:-1]
        ):
            raise ValueError("its signature (seal) is not valid for the attempt that it names")
        texts = {name: (value or b"").decode("utf-8", "replace") for name, value in rest}
        dead_letter = DeadLetter(header.position, key, value, header.error, texts, own)
        dead_letters = found.setdefault(header.source, {})
        # A dead letter may be written twice. Only the first message with a number counts.
        dead_letters.setdefault(header.number, StoredDeadLetter(header.source, dead_letter, _message_time(message)))


def _to_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _message_time(message: Message) -> datetime:
    """Return the timestamp of a message; ``datetime.max`` if it is not a valid time."""
    try:
        return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)
