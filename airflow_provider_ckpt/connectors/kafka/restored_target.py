"""Detection by the sink of a target whose log lost records: each fence, and each run's end, records what the log held.

A later loss of rows that were delivered before the newest record is thus detected. Not so what a run delivered that was
killed, unless the receipts were lost as well, which the ledger detects.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.record_probe import RecordProbe, StartOffset
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic, SinkTopicsClient
from airflow_provider_ckpt.connectors.kafka.source_topic import LogOffsets, TopicClient
from airflow_provider_ckpt.core.errors import ErrorType, KafkaConsumerError

_CLOCKS_MS = 600_000
"""Milliseconds by which the broker's clock may differ from this one when expired records are computed."""


@dataclass(frozen=True, slots=True)
class LogHeld:
    """Records that a partition held.

    :param end: the offset after its last one
    :param leader_epoch: of the leader, if the broker gave it
    :param start: the offset of its first one
    :param newest_ms: the largest timestamp of all; None if there was none
    """

    end: int
    leader_epoch: int | None
    start: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class TargetLogEnds:
    """Offsets that each partition of a target held.

    :param topic: the target's id
    :param held: by partition
    """

    topic: str
    held: Mapping[int, LogHeld]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"topic": self.topic, "held": [[number, *astuple(at)] for number, at in sorted(self.held.items())]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TargetLogEnds:
        """The log that :meth:`to_json` wrote."""
        return cls(data["topic"], {number: LogHeld(*at) for number, *at in data["held"]})


class TargetLogReader:
    """Reader of the ends of a target's logs, which detects lost records.

    :param pipeline: for the client's name
    :param may_be_emptied: whether records are deleted on purpose, so that their absence is no loss
    """

    def __init__(self, connection: Connection, pipeline: str, *, may_be_emptied: bool = False) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._may_be_emptied = may_be_emptied

    def read(self, target: SinkTopic, topics: SinkTopicsClient) -> TargetLogEnds:
        """Return what the target's log holds now.

        :param target: the target
        :param topics: asks the broker
        :raises CkptError: if the broker cannot be queried
        """
        offsets = self._read_offsets(target, range(target.partitions))
        newest = topics.newest_times(target.name, target.partitions)
        return TargetLogEnds(
            target.id,
            {
                number: LogHeld(at.log_end, at.leader_epoch, at.start, newest.get(number))
                for number, at in offsets.items()
            },
        )

    def describe_loss(self, target: SinkTopic, noted: TargetLogEnds) -> str | None:
        """Describe the records that were lost since the ends were recorded; return None if none were.

        :param target: the target topic
        :param noted: ends of its logs at the newest fence
        :raises CkptError: if the broker cannot be queried
        """
        if noted.topic != target.id:
            return None
        numbers = [number for number in noted.held if number < target.partitions]
        offsets = self._read_offsets(target, numbers)
        for number in numbers:
            end = noted.held[number].end
            if offsets[number].log_end < end:
                return (
                    f"partition {number} of topic {target.name} ends at offset {offsets[number].log_end}, and reached "
                    f"{end} when this pipeline last looked"
                )
            if not self._may_be_emptied and _deleted(target, noted.held[number], offsets[number]):
                return (
                    f"partition {number} of topic {target.name} begins at offset {offsets[number].start}, and began at "
                    f"{noted.held[number].start} when this pipeline last looked, which the topic's retention does not "
                    "explain: somebody deleted records (where that is on purpose, write sink.may_be_emptied: true)"
                )
        starts = {
            number: StartOffset(noted.held[number].end, noted.held[number].leader_epoch)
            for number in numbers
            if offsets[number].start <= noted.held[number].end
            and offsets[number].leader_epoch != noted.held[number].leader_epoch
        }
        with closing(RecordProbe(self._connection, self._pipeline, target.name, isolation="read_uncommitted")) as probe:
            try:
                found = probe.first_records(starts)
            except KafkaConsumerError as error:
                if error.recoverable:
                    raise
                return None  # the right to write to the topic does not include the right to read it
        for number, result in found.items():
            if result.lost is not None:
                reason = result.lost.partition(" Reset to")[0].rstrip(".")
                return (
                    f"partition {number} of topic {target.name} lost records that were there when this pipeline last "
                    f"looked: {reason}"
                )
        return None

    def _read_offsets(self, target: SinkTopic, numbers: Sequence[int]) -> Mapping[int, LogOffsets]:
        client = f"ckpt-sink-{self._pipeline}"
        with closing(TopicClient(self._connection, target.name, client, ErrorType.KAFKA_PRODUCER)) as topic_client:
            return topic_client.bounds(numbers)


def _deleted(target: SinkTopic, before: LogHeld, now: LogOffsets) -> bool:
    """Return whether records are gone from a log's beginning that the topic's retention cannot have removed.

    :param before: what the partition held, and now does not hold from its first offset on
    """
    if now.start <= before.start or target.compacted or target.number("retention.bytes") >= 0:
        return False
    kept_ms = target.number("retention.ms")
    if kept_ms < 0:
        return True
    if now.start < before.end or before.newest_ms is None:
        return False  # the oldest records may have been old enough
    return before.newest_ms + kept_ms > time.time() * 1000 + _CLOCKS_MS
