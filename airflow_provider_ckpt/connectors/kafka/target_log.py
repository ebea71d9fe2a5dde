"""Detection by the sink of a target whose log lost records: each fence records how far the log reached.

A later loss of rows that were delivered before the newest fence is thus detected. A loss of rows delivered after it is
not, unless their receipts were lost as well, which the ledger detects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.kafka.probe import Place, Probe
from airflow_provider_ckpt.connectors.kafka.topic import Asking, Bounds
from airflow_provider_ckpt.connectors.kafka.written import WrittenTopic
from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ErrorType, KafkaConsumerError


@dataclass(frozen=True, slots=True)
class TargetLog:
    """End of the log of each partition of a target.

    :param topic: the target's id
    :param ends: by partition, the offset after its last record, and the leader epoch if the broker gave it
    """

    topic: str
    ends: Mapping[int, tuple[int, int | None]]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"topic": self.topic, "ends": [[number, *at] for number, at in sorted(self.ends.items())]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TargetLog:
        """The log that :meth:`to_json` wrote."""
        return cls(data["topic"], {number: (end, leader_epoch) for number, end, leader_epoch in data["ends"]})


class TargetLogs:
    """Looks at a target's log.

    :param pipeline: for the client's name
    """

    def __init__(self, connection: Connection, pipeline: str) -> None:
        self._connection = connection
        self._pipeline = pipeline

    def now(self, target: WrittenTopic) -> TargetLog:
        """Return the current end of the target's log.

        :raises CkptError: if the broker cannot be queried
        """
        held = self._held(target, range(target.partitions))
        return TargetLog(target.id, {number: (at.log_end, at.leader_epoch) for number, at in held.items()})

    def lost(self, target: WrittenTopic, noted: TargetLog) -> str | None:
        """A sentence that says what is gone of what was there when it was noted; None if nothing is.

        :raises CkptError: if the broker cannot be asked
        """
        if noted.topic != target.id:
            return None
        numbers = [number for number in noted.ends if number < target.partitions]
        held = self._held(target, numbers)
        for number in numbers:
            end = noted.ends[number][0]
            if held[number].log_end < end:
                return (
                    f"partition {number} of topic {target.name} ends at offset {held[number].log_end}, and reached "
                    f"{end} when the newest fence was raised"
                )
        places = {
            number: Place(noted.ends[number][0], noted.ends[number][1])
            for number in numbers
            if held[number].start <= noted.ends[number][0] and held[number].leader_epoch != noted.ends[number][1]
        }
        with closing(Probe(self._connection, self._pipeline, target.name, isolation="read_uncommitted")) as probe:
            try:
                found = probe.first(places)
            except KafkaConsumerError as error:
                if error.recoverable:
                    raise
                return None  # who may write to the topic need not be allowed to read it
        for number, seen in found.items():
            if seen.lost is not None:
                said = seen.lost.partition(" Reset to")[0].rstrip(".")
                return (
                    f"partition {number} of topic {target.name} lost records that were there when the newest fence was "
                    f"raised: {said}"
                )
        return None

    def _held(self, target: WrittenTopic, numbers: Sequence[int]) -> Mapping[int, Bounds]:
        client = f"ckpt-sink-{self._pipeline}"
        with closing(Asking(self._connection, target.name, client, ErrorType.KAFKA_PRODUCER)) as asking:
            return asking.bounds(numbers)
