"""Interfaces of sources; one conformance suite tests every connector's source against them.

:class:`Source` runs in the process that holds the lease (no Spark, light imports), :class:`Reader` inside a lane on a
Spark executor. Neither knows Airflow or the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_plan import (
    FindUnreceipted,
    Plan,
    PlanRequest,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.core.schema_version import SchemaVersion, SourceColumn
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa

POSITION = "__pos"
"""Name of the int64 column with each record's source position, first in every Arrow batch that a reader yields."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Names and types of the columns that a reader yields after the column :data:`POSITION`.

    :param raw: if True, one ``value`` column of bytes, to be decoded by the transform, and possibly ``key``,
        ``headers`` and ``timestamp``; if False, typed columns
    :param columns: name and Spark SQL type of each column, in order
    :param version: number of the schema version to which the columns belong; None if the pipeline has no versions
    :param source_columns: for each column that is read, by name: its number and type in the source, with which a reader
        checks that the source is unchanged; empty without a version
    :param refused: columns that the schema policy refuses: a record in which one of them is not null is rejected. For
        each column, by name: the Spark SQL type of the null that records have for the sink instead (empty if they do
        not have the column), and the refusing key of the policy, such as ``new_column``
    """

    raw: bool
    columns: Sequence[tuple[str, str]]
    version: int | None = None
    source_columns: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def absent(self) -> Sequence[str]:
        """Names of the columns that the source no longer has, and that are null in each record."""
        return [] if self.version is None else [name for name, _ in self.columns if name not in self.source_columns]

    @property
    def outputs(self) -> Sequence[tuple[str, str]]:
        """Name and Spark SQL type of each column that the sink receives if the transform changes no column."""
        nulls = {name: null for name, (null, _) in self.refused.items()}
        return [(name, nulls.get(name, kind)) for name, kind in self.columns if nulls.get(name) != ""]

    def to_json(self) -> dict[str, Any]:
        """Return the shape as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "raw": self.raw,
            "columns": [list(column) for column in self.columns],
            "version": self.version,
            "source_columns": {name: list(column) for name, column in self.source_columns.items()},
            "refused": {name: list(refusal) for name, refusal in self.refused.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordShape:
        """Restore a shape that :meth:`to_json` has converted.

        :param data: the JSON-ready dict
        """
        columns = [(str(name), str(kind)) for name, kind in data["columns"]]
        source = {str(name): (int(number), str(kind)) for name, (number, kind) in data["source_columns"].items()}
        refused = {str(name): (str(null), str(key)) for name, (null, key) in data["refused"].items()}
        return cls(data["raw"], columns, data["version"], source, refused)


class Source(Protocol):
    """Planning side of a source: finds new records and splits them into batches.

    Methods raise :class:`SourceError` or :class:`ConfigError`.
    """

    def check(self) -> None:
        """Raise an error if the source cannot be reached, or lacks a topic, table or column that the pipeline names."""

    def partitions(self) -> Sequence[SourcePartition]:
        """Return every partition that the source has now."""

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the position at which a partition is first read; a files source also returns the files found so far.

        :param partition: id of the partition
        :param start_from: ``earliest``, ``latest`` or a position
        """

    def shape(self) -> RecordShape:
        """Return the columns that this source's readers yield."""

    def plan(self, request: PlanRequest) -> Plan:
        """Split new records, or the records of a gap, into batches, none of which ends beyond a closed bound.

        :param request: the ranges to plan, with limits and the state of the last planning
        """

    def may_have_late_records(self) -> bool:
        """Return whether records may still appear in a range that was read, although its bound was closed."""

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:
        """Return one digest for each range, computed from the positions of all records that the range contains now.

        Return None from a source in which no record can appear in a range that was read.

        :param partition: id of the partition
        :param ranges: ranges of the partition that were read
        """

    def positions(self, partition: str, span: Range) -> Sequence[int]:
        """Return the position of every record that a range contains now, in order.

        :param partition: id of the partition
        :param span: the range; only for a source whose :meth:`digests` returns digests
        """

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """Return the same tasks with ``detail`` filled in, from which the reader finds the records of each range.

        :param tasks: batches to read
        :param files: for a files source, all source files that the ledger has recorded; empty for any other source
        :raises SourceError: if a task can no longer be read; if the error names a batch, it concerns only that batch
        """

    def close(self) -> None:
        """Close the connections to the source."""


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """Sign in a source that records may have been missed, such as a sequence that was set back.

    It makes the next planning fail.

    :param description: the fact, as a sentence
    :param late_ranges: ranges of the records that appeared after their positions were planned; empty if no record is
        missed yet; None if reading these records again does not repair the loss
    :param first_step: instruction for the user that precedes any recovery, as a sentence; empty if there is none
    """

    description: str
    late_ranges: Sequence[Range] | None
    first_step: str = ""


@dataclass(frozen=True, slots=True)
class PlanningAlarm:
    """Signs in a source that records may have been missed; until a recovery has accounted for them, planning fails.

    :param evidence: the signs
    :param state: state of the partition to store once a recovery has accounted for all of them, so that planning
        succeeds again; see :attr:`Plan.states`
    """

    evidence: Sequence[SourceEvidence]
    state: Mapping[str, Any]


@runtime_checkable
class WatchedSource(Protocol):
    """A source that detects late records: those that appeared, after the last planning, at a position planned before.

    No later batch reads such records. The source detects them by comparing itself with the state that the last planning
    stored.
    """

    def watch(
        self, partition: str, end: int, state: Mapping[str, Any], unread: FindUnreceipted | None = None
    ) -> PlanningAlarm | None:
        """Return the signs of missed records that would make a partition's next planning fail; None if there are none.

        Such a sign shows that, since the last planning, records have got positions that were planned already, where no
        run reads any more.

        :param partition: id of the partition
        :param end: end of the partition's plan: all positions before it were planned
        :param state: state that the last planning stored; see :attr:`Plan.states`
        :param unread: function that finds, below the end of the plan, records that were never read; None if receipts
            are not available
        """


@runtime_checkable
class DescribesColumns(Protocol):
    """A source that can return its present columns with their types."""

    def columns(self) -> Sequence[SourceColumn]:
        """Return the columns that the source has now; only those that the pipeline names, if it names any."""


@runtime_checkable
class SourceWithColumns(DescribesColumns, Protocol):
    """A source whose columns can change."""

    def version_shape(self, version: SchemaVersion) -> RecordShape:
        """Return the columns that this source's readers yield for batches of a schema version.

        :param version: the schema version
        """

    def is_wider(self, name: str, before: str, after: str) -> bool:
        """Return whether a column's new type can represent all values of its old type, so that it may be changed.

        :param name: name of the column
        :param before: type before the change
        :param after: type after the change
        """


@runtime_checkable
class RefreshedSource(Protocol):
    """A source that each run reads as a whole, as of one moment (see ``core/refresh.py``).

    A snapshot here is a view of the source's rows as of that moment, such as an open transaction of the database.
    """

    def begin_refresh(self, partition: str) -> RefreshExtent:
        """Take a snapshot of a partition, and return its id and the positions of the refresh; end an earlier snapshot.

        :param partition: id of the partition
        """

    def holds_snapshot(self, snapshot: str) -> bool:
        """Return whether this object holds a snapshot: it has taken it, has taken no other since, and is not closed.

        :param snapshot: id of the snapshot
        """


class Reader(Protocol):
    """Reading side of a source; each lane has its own reader, whose connection stays open across batches."""

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of the task's range in position order: :data:`POSITION`, then the columns of the shape.

        A range without records yields nothing. The reader must reach the range's end or raise an error.

        :param task: the batch
        :raises SourceError: if the source fails
        :raises IoError: if a file cannot be read
        """

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a record in the source.

        These are ``source-table``, ``source-file`` or ``source-topic``, and ``source-partition`` and
        ``source-position``.

        :param task: the record's batch
        :param position: the record's position
        """

    def close(self) -> None:
        """Close the connections to the source."""


class SparkFedReader(Reader, Protocol):
    """Reader of a source that Spark itself reads: a lane passes records to :meth:`accept` before each :meth:`read`."""

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Keep the records of a batch that Spark has read; the next :meth:`read` yields them.

        :param task: the batch
        :param records: its records, in the format that :meth:`Reader.read` yields
        """
