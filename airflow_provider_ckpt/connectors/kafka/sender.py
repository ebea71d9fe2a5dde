"""Send a batch's messages to a topic; messages that the broker may refuse are sent with a delivery callback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.kafka.client import error_codes
from airflow_provider_ckpt.connectors.kafka.serialize import Messages, to_lists
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_BAD_RECORD = "INVALID_RECORD INVALID_TIMESTAMP MSG_SIZE_TOO_LARGE"
_QUEUE_WAIT_SECONDS = 0.5
"""Maximum time in seconds of one wait for room in the producer's full queue."""


class Sender:
    """Sender of messages to one topic.

    :param producer: the producer, with an open transaction if it has a transactional id
    :param topic: the topic's name
    :param refused: dict to which delivery callbacks add the error of each refused message, by row number
    """

    def __init__(self, producer: Producer, topic: str, refused: dict[int, ErrorInfo]) -> None:
        self._producer = producer
        self._topic = topic
        self._refused = refused

    def send(self, messages: Messages, doubtful: Sequence[int]) -> None:
        """Send all messages in order; wait while the producer's queue is full.

        :param messages: the messages
        :param doubtful: indexes of the messages that the broker may refuse, in order; they get a delivery callback
        """
        values, keys, partitions, timestamps, headers = to_lists(messages)
        assert values is not None
        for start, end in pairwise([-1, *doubtful, len(values)]):
            part = slice(start + 1, end)
            if partitions is timestamps is headers is None:
                self._send_keyed(values[part], None if keys is None else keys[part])
            else:
                columns = [keys, partitions, timestamps, headers]
                self._send_with_all_fields(
                    values[part], *[None if column is None else column[part] for column in columns]
                )
            if end < len(values):
                watch = partial(self._report, messages.numbers[end].as_py())
                given = {"key": keys, "partition": partitions, "timestamp": timestamps, "headers": headers}
                self.send_one(values[end], watch, {name: column[end] for name, column in given.items() if column})

    def send_one(self, value: bytes | None, on_delivery: Any, fields: Mapping[str, Any]) -> None:
        """Send one message with a delivery callback.

        :param value: value of the message
        :param on_delivery: function that receives the error (None if the broker accepted the message) and the message;
            None for no callback
        :param fields: further arguments of ``Producer.produce``, such as ``key``; those that are None are left out
        """
        fields = {name: given for name, given in fields.items() if given is not None}
        while True:
            try:
                return self._producer.produce(self._topic, value, on_delivery=on_delivery, **fields)
            except BufferError:
                self._producer.poll(_QUEUE_WAIT_SECONDS)

    def _send_keyed(self, values: list[Any], keys: list[Any] | None) -> None:
        produce, topic, poll = self._producer.produce, self._topic, self._producer.poll
        for value, key in zip(values, repeat(None) if keys is None else keys, strict=False):
            try:
                produce(topic, value, key)
            except BufferError:
                poll(_QUEUE_WAIT_SECONDS)
                self.send_one(value, None, {"key": key})

    def _send_with_all_fields(
        self,
        values: list[Any],
        keys: list[Any] | None,
        partitions: list[int] | None,
        timestamps: list[int] | None,
        headers: list[Any] | None,
    ) -> None:
        produce, topic, poll = self._producer.produce, self._topic, self._producer.poll
        rows = zip(
            values,
            repeat(None) if keys is None else keys,
            repeat(-1) if partitions is None else partitions,
            repeat(0) if timestamps is None else timestamps,
            repeat(None) if headers is None else headers,
            strict=False,
        )
        for value, key, to, at, own in rows:
            try:
                produce(topic, value, key, to, None, None, at, own)
            except BufferError:
                poll(_QUEUE_WAIT_SECONDS)
                self.send_one(value, None, {"key": key, "partition": to, "timestamp": at, "headers": own})

    def _report(self, number: int, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() in error_codes(_BAD_RECORD):
            reason = f"topic {self._topic} refused the record: {error.str()}"
            self._refused[number] = record_error(ErrorType.SERIALIZATION, reason)
