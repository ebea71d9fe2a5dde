"""Notices that a partition's log lost records which were planned already, and gives their offsets to other records.

That happens after an unclean leader election, when a broker loses its disk, and when a cluster is restored from a
copy. The ledger keeps a mark of each partition: how far it was planned, the leader epoch then, and the last record.
The broker says where the log ended under that epoch (KIP-101), and the record must still be the same. A cluster that
was restored together with its metadata gives out epochs a second time, so that only the record tells; compaction
removes records, so that only the epoch tells.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kafka.record_probe import Found, Place, Probe
from airflow_provider_ckpt.connectors.kafka.source_topic import Asking, Bounds
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    from confluent_kafka import Message

_BROKER_END = re.compile(r"broker end offset is (\d+)")


@dataclass(frozen=True, slots=True)
class RecordMark:
    """A record, so that another one at its offset can be told from it.

    :param timestamp: milliseconds since 1970
    :param checksum: of key and value
    """

    offset: int
    timestamp: int
    checksum: int

    @classmethod
    def of(cls, message: Message) -> RecordMark:
        """The mark of a record."""
        checksum = 0
        for data in (message.key(), message.value()):
            checksum = zlib.crc32(b"" if data is None else b"%d:" % len(data) + data, checksum)
        return cls(message.offset() or 0, message.timestamp()[1], checksum)

    def told(self) -> str:
        """The record for a person, without its content."""
        if not 0 <= self.timestamp < 253_402_300_800_000:
            return f"of time {self.timestamp} ms, checksum {self.checksum:08x}"
        at = datetime.fromtimestamp(self.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        return f"of {at}, checksum {self.checksum:08x}"


@dataclass(frozen=True, slots=True)
class LogMark:
    """A partition's log as it was when it was planned.

    :param end: the offset after the last one that was planned
    :param leader_epoch: the leader's then; None if the broker did not say
    :param record: the last record before ``end``; None if none was found near it
    """

    end: int
    leader_epoch: int | None
    record: RecordMark | None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        record = self.record and [self.record.offset, self.record.timestamp, self.record.checksum]
        return {"end": self.end, "leader_epoch": self.leader_epoch, "record": record}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogMark | None:
        """The mark that :meth:`to_json` wrote; None where there is none."""
        if "end" not in data:
            return None
        return cls(data["end"], data["leader_epoch"], RecordMark(*data["record"]) if data["record"] else None)


class LogContinuity:
    """Checks one topic's partitions against their marks, and makes new ones.

    :param asking: asks the cluster about the topic
    """

    def __init__(self, probe: Probe, asking: Asking, pipeline: str, topic: str) -> None:
        self._probe = probe
        self._asking = asking
        self._pipeline = pipeline
        self._topic = topic
        self._checked: dict[int, int | None] = {}

    def check(self, marks: Mapping[int, LogMark], held: Mapping[int, Bounds]) -> None:
        """Compare logs with their marks; once, and again when another leader was elected.

        :param marks: by partition
        :raises SourceError: if a log does not hold what it held, naming the partition, both states and the command
        """
        due = {number: mark for number, mark in marks.items() if self._due(number, held[number], mark)}
        self._check_epochs(due)
        for number, mark in due.items():
            end = held[number].end
            if end < mark.end:
                raise self._lost(number, mark, f"it ends at offset {end} now", end)
        self._check_records(due, held)
        self._checked.update({number: held[number].leader_epoch for number in due})

    def marks(
        self, ends: Mapping[int, int], held: Mapping[int, Bounds], known: Mapping[int, LogMark]
    ) -> dict[int, LogMark]:
        """The marks of partitions as they are planned now.

        :param ends: of each partition, the offset after the last one that is planned
        :param held: as it was asked for before they were planned
        :param known: their marks so far, which stay where nothing was planned
        """
        moved = {
            number: end
            for number, end in ends.items()
            if held[number].end >= end and (number not in known or known[number].end != end)
        }
        last = self._probe.last(moved, {number: held[number].start for number in moved})
        found = {number: mark for number, mark in known.items() if number in ends}
        for number, end in moved.items():
            if number in last:
                record: RecordMark | None = RecordMark.of(last[number])
            else:
                record = known[number].record if number in known and known[number].end <= end else None
            found[number] = LogMark(end, held[number].leader_epoch, record)
        return found

    def _due(self, number: int, held: Bounds, mark: LogMark) -> bool:
        """Whether a partition is to be compared; one that expired beyond its mark cannot be: its range says so."""
        known = held.leader_epoch is not None and self._checked.get(number) == held.leader_epoch
        return held.start <= mark.end and not known

    def _check_epochs(self, marks: Mapping[int, LogMark]) -> None:
        places = {
            number: Place(mark.end, mark.leader_epoch)
            for number, mark in marks.items()
            if mark.leader_epoch is not None
        }
        for number, found in self._probe.first(places).items():
            if found.lost is not None:
                at = _BROKER_END.search(found.lost)
                seen = f"the broker says: {found.lost.partition(' Reset to')[0].rstrip('.')}"
                raise self._lost(number, marks[number], seen, int(at[1]) if at else None)

    def _check_records(self, marks: Mapping[int, LogMark], held: Mapping[int, Bounds]) -> None:
        records = {
            number: mark.record
            for number, mark in marks.items()
            if mark.record is not None and held[number].start <= mark.record.offset < mark.end
        }
        for number, found in self._probe.first({n: Place(record.offset) for n, record in records.items()}).items():
            wanted = records[number]
            now = RecordMark.of(found.record) if found.record is not None else None
            if now == wanted or found.lost is not None or found == Found():
                continue
            if now is None or now.offset != wanted.offset:
                if self._asking.compacted():
                    continue
                seen = f"offset {wanted.offset} held a record {wanted.told()}, and holds none now"
            else:
                seen = f"the record at offset {wanted.offset} was one {wanted.told()}, and is one {now.told()} now"
            raise self._lost(number, marks[number], seen, None)

    def _lost(self, number: int, mark: LogMark, seen: str, end: int | None) -> SourceError:
        partition = f"{self._topic}-{number}"
        again = f"airflow ckpt rewind {self._pipeline} --partition {partition} --to-position"
        where = str(end) if end is not None else "N"
        find = "" if end is not None else " (N: the first offset that holds another record than it did)"
        return SourceError(
            f"partition {number} of topic {self._topic} lost records that were planned already, up to offset "
            f"{mark.end}, and may have given their offsets to others: {seen}. An unclean leader election, a lost disk "
            "or a restored cluster does that.",
            pipeline=self._pipeline,
            position=mark.end if end is None else end,
            hint=f"`{again} {where} --reason …`{find} delivers what has these offsets now; a sink that appends keeps "
            "what it got before. To leave it out, rewind to the checkpoint itself.",
        )
