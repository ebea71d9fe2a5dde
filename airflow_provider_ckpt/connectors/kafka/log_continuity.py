"""Detect that a source partition's log lost records that were planned already, so that their offsets may be reused.

Causes are an unclean leader election, the loss of a broker's disk, and the restore of a cluster from a copy. The ledger
stores a snapshot of each partition: the end of the planned offsets, the leader epoch at that time, and a fingerprint of
the last record. Later, the broker is asked where the log of that leader epoch ends (KIP-101), and the record at that
offset must still be the same. Both checks are necessary: a cluster that was restored together with its metadata reuses
leader epochs, so only the record reveals the loss; in a compacted topic the record may have been removed, so only the
leader epoch reveals it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kafka.record_probe import ProbeResult, RecordProbe, StartOffset
from airflow_provider_ckpt.connectors.kafka.source_topic import LogOffsets, TopicClient
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    from confluent_kafka import Message

_BROKER_END = re.compile(r"broker end offset is (\d+)")


@dataclass(frozen=True, slots=True)
class RecordFingerprint:
    """Fingerprint of a record, to distinguish it from another record at the same offset.

    :param offset: the record's offset
    :param timestamp: milliseconds since 1970
    :param checksum: CRC-32 of key and value
    """

    offset: int
    timestamp: int
    checksum: int

    @classmethod
    def of(cls, message: Message) -> RecordFingerprint:
        """Return the fingerprint of a record."""
        checksum = 0
        for data in (message.key(), message.value()):
            checksum = zlib.crc32(b"" if data is None else b"%d:" % len(data) + data, checksum)
        return cls(message.offset() or 0, message.timestamp()[1], checksum)

    def describe(self) -> str:
        """Return time and checksum for a message: ``of 2026-03-01T12:00:00.000+00:00, checksum 0f3a9c21``."""
        if not 0 <= self.timestamp < 253_402_300_800_000:
            return f"of time {self.timestamp} ms, checksum {self.checksum:08x}"
        at = datetime.fromtimestamp(self.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        return f"of {at}, checksum {self.checksum:08x}"


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Snapshot of the log of one partition of the topic, taken at planning.

    :param end: offset after the last planned one
    :param leader_epoch: leader epoch of the partition; None if the broker did not report it
    :param record: fingerprint of the last record before ``end``; None if none was found near it
    """

    end: int
    leader_epoch: int | None
    record: RecordFingerprint | None

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        record = self.record and [self.record.offset, self.record.timestamp, self.record.checksum]
        return {"end": self.end, "leader_epoch": self.leader_epoch, "record": record}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogSnapshot | None:
        """Return the snapshot in the values that the ledger stores for a partition; None if they contain none."""
        if "end" not in data:
            return None
        return cls(data["end"], data["leader_epoch"], RecordFingerprint(*data["record"]) if data["record"] else None)


class LogContinuity:
    """Checks a topic's partitions for lost records: compares their logs with snapshots, and takes new snapshots.

    :param probe: reader of single records of the topic
    :param topic_client: client for the topic's metadata
    :param pipeline: the pipeline's name, for error messages
    :param topic: the topic's name
    """

    def __init__(self, probe: RecordProbe, topic_client: TopicClient, pipeline: str, topic: str) -> None:
        self._probe = probe
        self._topic_client = topic_client
        self._pipeline = pipeline
        self._topic = topic
        self._checked: dict[int, int | None] = {}

    def check_snapshots(self, snapshots: Mapping[int, LogSnapshot], offsets: Mapping[int, LogOffsets]) -> None:
        """Compare the log of each partition with its snapshot.

        Later calls compare a log again only after the election of a leader, or if the broker reports no leader epoch.

        :param snapshots: snapshot of each partition, by partition number
        :param offsets: current offsets of each partition
        :raises SourceError: if a log has lost records; the error names the partition, the evidence, and the command
            with which the user can continue
        """
        due = {
            number: snapshot for number, snapshot in snapshots.items() if self._due(number, offsets[number], snapshot)
        }
        self._check_leader_epochs(due)
        for number, snapshot in due.items():
            end = offsets[number].end
            if end < snapshot.end:
                raise self._loss_error(number, snapshot, f"it ends at offset {end} now", end)
        self._check_records(due, offsets)
        self._checked.update({number: offsets[number].leader_epoch for number in due})

    def new_snapshots(
        self, ends: Mapping[int, int], offsets: Mapping[int, LogOffsets], known: Mapping[int, LogSnapshot]
    ) -> dict[int, LogSnapshot]:
        """Return the snapshots of the partitions after planning, by partition number.

        :param ends: offset after the last planned one, of each partition for which a snapshot is returned
        :param offsets: offsets of each partition, as read before planning
        :param known: previous snapshots; a snapshot remains as it is if the end of the planned offsets has not changed
        """
        moved = {
            number: end
            for number, end in ends.items()
            if offsets[number].end >= end and (number not in known or known[number].end != end)
        }
        last = self._probe.last_records(moved, {number: offsets[number].start for number in moved})
        found = {number: snapshot for number, snapshot in known.items() if number in ends}
        for number, end in moved.items():
            if number in last:
                record: RecordFingerprint | None = RecordFingerprint.of(last[number])
            else:
                record = known[number].record if number in known and known[number].end <= end else None
            found[number] = LogSnapshot(end, offsets[number].leader_epoch, record)
        return found

    def _due(self, number: int, offsets: LogOffsets, snapshot: LogSnapshot) -> bool:
        """Return whether the log of a partition has to be compared with its snapshot now.

        A log that begins after the snapshot's end cannot be compared; planning reports the expired range instead.

        :param number: number of the partition
        :param offsets: its current offsets
        :param snapshot: its snapshot
        """
        known = offsets.leader_epoch is not None and self._checked.get(number) == offsets.leader_epoch
        return offsets.start <= snapshot.end and not known

    def _check_leader_epochs(self, snapshots: Mapping[int, LogSnapshot]) -> None:
        starts = {
            number: StartOffset(snapshot.end, snapshot.leader_epoch)
            for number, snapshot in snapshots.items()
            if snapshot.leader_epoch is not None
        }
        for number, found in self._probe.first_records(starts).items():
            if found.lost is not None:
                at = _BROKER_END.search(found.lost)
                observation = f"the broker reports: {found.lost.partition(' Reset to')[0].rstrip('.')}"
                raise self._loss_error(number, snapshots[number], observation, int(at[1]) if at else None)

    def _check_records(self, snapshots: Mapping[int, LogSnapshot], offsets: Mapping[int, LogOffsets]) -> None:
        records = {
            number: snapshot.record
            for number, snapshot in snapshots.items()
            if snapshot.record is not None and offsets[number].start <= snapshot.record.offset < snapshot.end
        }
        for number, found in self._probe.first_records(
            {n: StartOffset(record.offset) for n, record in records.items()}
        ).items():
            wanted = records[number]
            now = RecordFingerprint.of(found.record) if found.record is not None else None
            if now == wanted or found.lost is not None or found == ProbeResult():
                continue
            if now is None or now.offset != wanted.offset:
                if self._topic_client.compacted():
                    continue
                observation = f"offset {wanted.offset} held a record {wanted.describe()}, and holds none now"
            else:
                observation = (
                    f"the record at offset {wanted.offset} was one {wanted.describe()}, and is one {now.describe()} now"
                )
            raise self._loss_error(number, snapshots[number], observation, None)

    def _loss_error(self, number: int, snapshot: LogSnapshot, observation: str, end: int | None) -> SourceError:
        partition = f"{self._topic}-{number}"
        rewind_command = f"airflow ckpt rewind {self._pipeline} --partition {partition} --to-position"
        where = str(end) if end is not None else "N"
        find = "" if end is not None else " (N: the first offset whose record has changed)"
        return SourceError(
            f"partition {number} of topic {self._topic} lost records that were planned already, up to offset "
            f"{snapshot.end}, and other records may have got their offsets: {observation}. Typical causes are an "
            "unclean leader election, a lost disk and a restored cluster.",
            pipeline=self._pipeline,
            position=snapshot.end if end is None else end,
            hint=f"`{rewind_command} {where} --reason …`{find} delivers the records that have these offsets now; an "
            "append sink also keeps the rows that it already has. To skip those records, rewind to the checkpoint.",
        )
