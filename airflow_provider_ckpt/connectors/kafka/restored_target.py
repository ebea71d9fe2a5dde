"""Detect that the target topic lost delivered records: its log was truncated, or records were deleted from it.

Each fence writes to the receipts topic the first and last offset of each partition of the target, and so does the end
of each run that delivered something. The next run compares the target with these offsets. This detects the loss of rows
that were delivered before the newest offsets were written. It does not detect the loss of rows that a killed run
delivered after its fence; but if their receipts were lost as well, the ledger finds that the receipts are missing.
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
"""Assumed maximum difference between the broker's clock and the local one, in milliseconds."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """First and last offset of the log of one partition of the target topic, at the time when a run recorded them.

    :param end: offset after the last record
    :param leader_epoch: leader epoch of the partition; None if the broker did not report it
    :param start: first offset in the log
    :param newest_ms: largest timestamp of the records, in milliseconds since 1970; None if there were no records
    """

    end: int
    leader_epoch: int | None
    start: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class TargetLogEnds:
    """First and last offsets of all partitions of a target topic, at the time when a run recorded them.

    :param topic: the target's topic id
    :param held: first and last offset of each partition, by partition number
    """

    topic: str
    held: Mapping[int, LogExtent]

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"topic": self.topic, "held": [[number, *astuple(at)] for number, at in sorted(self.held.items())]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TargetLogEnds:
        """Restore the offsets from the output of :meth:`to_json`."""
        return cls(data["topic"], {number: LogExtent(*at) for number, *at in data["held"]})


class TargetLogReader:
    """Reader of the target topic's offsets, which detects that the topic has lost records.

    :param connection: connection to the target's cluster
    :param pipeline: the pipeline's name, for the client id
    :param may_be_emptied: value of ``sink.may_be_emptied``: whether deleted records are no loss
    """

    def __init__(self, connection: Connection, pipeline: str, *, may_be_emptied: bool = False) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._may_be_emptied = may_be_emptied

    def read(self, target: SinkTopic, topics: SinkTopicsClient) -> TargetLogEnds:
        """Return the first and last offsets that the target's partitions have now.

        :param target: the target topic
        :param topics: client that returns the newest timestamps
        :raises CkptError: if the broker cannot be queried
        """
        offsets = self._read_offsets(target, range(target.partitions))
        newest = topics.newest_times(target.name, target.partitions)
        return TargetLogEnds(
            target.id,
            {
                number: LogExtent(at.log_end, at.leader_epoch, at.start, newest.get(number))
                for number, at in offsets.items()
            },
        )

    def describe_loss(self, target: SinkTopic, noted: TargetLogEnds) -> str | None:
        """Return the part of an error message that names the records which the topic lost since offsets were recorded.

        Return None if no loss is detected, or the topic was recreated, which its topic id reveals.

        :param target: the target topic
        :param noted: first and last offsets of its partitions, as stored with the newest epoch
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
                    f"partition {number} of topic {target.name} ends at offset {offsets[number].log_end}, but ended at "
                    f"{end} when this pipeline last checked it"
                )
            if not self._may_be_emptied and _deleted(target, noted.held[number], offsets[number]):
                return (
                    f"partition {number} of topic {target.name} begins at offset {offsets[number].start}, but began at "
                    f"{noted.held[number].start} when this pipeline last checked it, which the topic's retention does "
                    "not explain: records were deleted (if this is intended, set sink.may_be_emptied: true)"
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
                return None  # the sink's user may have permission only to write to the topic, not to read it
        for number, result in found.items():
            if result.lost is not None:
                reason = result.lost.partition(" Reset to")[0].rstrip(".")
                return (
                    f"partition {number} of topic {target.name} lost records that were there when this pipeline last "
                    f"checked it: {reason}"
                )
        return None

    def _read_offsets(self, target: SinkTopic, numbers: Sequence[int]) -> Mapping[int, LogOffsets]:
        client = f"ckpt-sink-{self._pipeline}"
        with closing(TopicClient(self._connection, target.name, client, ErrorType.KAFKA_PRODUCER)) as topic_client:
            return topic_client.bounds(numbers)


def _deleted(target: SinkTopic, before: LogExtent, now: LogOffsets) -> bool:
    """Return whether records that the topic's retention cannot have removed are missing at the beginning of a log.

    :param target: the topic, with its retention settings
    :param before: offsets of the partition when a run recorded them
    :param now: offsets of the partition now
    """
    if now.start <= before.start or target.compacted or target.number("retention.bytes") >= 0:
        return False
    kept_ms = target.number("retention.ms")
    if kept_ms < 0:
        return True
    if now.start < before.end or before.newest_ms is None:
        return False  # the missing records may have been old enough to expire
    return before.newest_ms + kept_ms > time.time() * 1000 + _CLOCKS_MS
