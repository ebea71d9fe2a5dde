"""Interfaces of sources; one conformance suite tests every connector's source against them.

:class:`Source` runs in the process that holds the lease (no Spark, light imports), :class:`Reader` inside a lane on a
Spark executor. Neither knows Airflow or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa

POSITION = "__pos"
"""Name of the int64 column with each record's source position, first in every Arrow batch that a reader yields."""

SOURCE_END = "reaches"
"""Key in a partition's state (:attr:`Plan.states`) of the position after the newest record that the source contains.

Some of the records before it may not be readable yet. Lag is counted up to this position.
"""

SNAPSHOT = "snapshot"
"""Key in a partition's state (:attr:`Plan.states`) of facts about the source at the last planning.

The next planning compares the source with these facts, to detect that positions below the checkpoint were assigned to
records since. A rewind removes them; a recovery that accounts for all records found replaces them.
"""


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A part of a source with an order and a checkpoint of its own.

    :param id: short and stable name; appears in batch names
    :param identity: identity of the topic, table or directory itself (topic id; system identifier and table oid;
        resolved directory); it reveals that the object was recreated under the same name, which is an error
    """

    id: str
    identity: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A discovered file, recorded permanently in the order of discovery.

    :param ordinal: number in discovery order, from 0
    :param path: absolute path
    :param base: position of the file's first byte: the sum of the sizes of all files before it
    :param size: number of bytes (of rows for Parquet)
    :param etag: text that changes when the file's content does (modification time in ns, size and inode, or the object
        store's etag)
    """

    ordinal: int
    path: str
    base: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Start:
    """Position at which a partition starts for the first time.

    :param position: the position
    :param files: for the files source, the discovered files, in order, over whose bytes or rows the position counts;
        they are recorded with it, so that the position means the same bytes even if other files appear before the first
        planning
    """

    position: int
    files: Sequence[SourceFile] = ()


@dataclass(frozen=True, slots=True)
class RangeToPlan:
    """A range of one partition to split into batches.

    :param partition: id of the partition
    :param start: first position to plan
    :param end: end of the range (for a gap to be planned again), or None for as far as the source reaches. If it equals
        ``start`` there is nothing to split, and only the bound is requested
    """

    partition: str
    start: int
    end: int | None = None

    @property
    def needs_bound(self) -> bool:
        """Return whether planning must determine the bound: how far the source may be read now."""
        return self.end is None or self.end == self.start


FindUnreceipted = Callable[[str, Sequence[Range]], Sequence[Range] | None]
"""Function that takes the id of a partition and ranges of it that were planned, and looks for records without receipt.

It returns ranges with the records that the source contains there now and whose positions are in no receipt; an empty
sequence if there are none. It returns None if the receipts do not tell this for all of the given ranges.
"""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Arguments of one planning.

    :param ranges: ranges to plan, oldest first
    :param records_per_batch: number of records in a batch, exact where the source can count; None if the source chooses
    :param max_records: approximate maximum of records to plan (back-pressure); at least one batch is planned if there
        are records
    :param files: files discovered so far (files source)
    :param states: :attr:`Plan.states` of the previous planning, by partition
    :param committed: checkpoint of each partition: every batch before this position has a verdict
    :param lag_only: whether the plan only serves to measure the lag; the source then hardly waits for a bound to close
    :param find_unreceipted: function that finds records in ranges planned before that are in no receipt; None if not
        available
    """

    ranges: Sequence[RangeToPlan]
    records_per_batch: int | None
    max_records: int
    files: Sequence[SourceFile] = ()
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    lag_only: bool = False
    find_unreceipted: FindUnreceipted | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A range to be recorded as a batch.

    :param partition: id of the partition
    :param range: positions of the batch
    :param records: expected number of records, if known
    :param expired: whether the source has deleted all records of the range (retention); an event in the ledger reports
        this, and a user decides to skip the batch
    """

    partition: str
    range: Range
    records: int | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of planning; the ledger stores all of it in one transaction.

    :param batches: contiguous per partition, starting where the request's ranges start
    :param files: newly discovered files
    :param bounds: closed bound of each partition: the position before which no new records can appear
    :param states: per partition, JSON-ready values that the ledger stores and the source receives at the next planning
    :param more: whether the source has more records than were planned (``max_records`` reached)
    :param refused: an error for each part of the source that cannot be read; the run delivers the rest, then fails
    :param notices: warnings about probable mistakes, one line each
    """

    batches: Sequence[PlannedBatch] = ()
    files: Sequence[SourceFile] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    more: bool = False
    refused: Sequence[CkptError] = ()
    notices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Columns that a reader yields after :data:`POSITION`.

    :param raw: if True, one ``value`` column of bytes, to be decoded by the transform, and possibly ``key``,
        ``headers`` and ``timestamp``; if False, typed columns
    :param columns: name and Spark SQL type of each column, in order
    """

    raw: bool
    columns: Sequence[tuple[str, str]]


class Source(Protocol):
    """Planning side of a source: finds new records and splits them into batches.

    Methods raise :class:`SourceError` or :class:`ConfigError`.
    """

    def check(self) -> None:
        """Raise an error if the source cannot be reached, or lacks a topic, table or column that the pipeline names."""

    def partitions(self) -> Sequence[SourcePartition]:
        """Return every partition that the source has now."""

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the position at which a partition starts for the first time.

        :param partition: id of the partition
        :param start_from: ``earliest``, ``latest`` or a position
        """

    def shape(self) -> RecordShape:
        """Return the columns that this source's readers yield."""

    def plan(self, request: PlanRequest) -> Plan:
        """Split new records, or those of a gap, into batches; no batch may end beyond a closed bound."""

    def may_have_late_records(self) -> bool:
        """Return whether records may still appear in a range that was read, although its bound was closed."""

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:
        """Return a digest for each range, made of the positions of all records that the range contains now.

        Return None if no record can appear in a range that was read.

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
        :param files: all recorded files (files source)
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
    """Alarm: the signs in a source that records may have been missed, because of which the next planning would fail.

    :param evidence: the signs
    :param state: state of the partition to store once a recovery has accounted for all of them, so that planning
        succeeds again; see :attr:`Plan.states`
    """

    evidence: Sequence[SourceEvidence]
    state: Mapping[str, Any]


@runtime_checkable
class WatchedSource(Protocol):
    """A source that detects late records: those that appeared below the end of the plan after the last planning.

    No later batch reads them. The source detects them by comparing itself with the state that the last planning stored.
    """

    def watch(
        self, partition: str, end: int, state: Mapping[str, Any], unread: FindUnreceipted | None = None
    ) -> PlanningAlarm | None:
        """Return the signs of missed records that would make a partition's next planning fail; None if there are none.

        Such a sign shows that, since the last planning, records have got positions below the end of the plan, where no
        run reads any more.

        :param partition: id of the partition
        :param end: end of the partition's plan: all positions before it were planned
        :param state: state that the last planning stored; see :attr:`Plan.states`
        :param unread: function that finds records below the end of the plan that are in no receipt; None if not
            available
        """


class Reader(Protocol):
    """Reading side of a source; each lane has its own reader, whose connection stays open across batches."""

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of the task's range in position order: :data:`POSITION`, then the columns of the shape.

        An empty range yields nothing. The reader must reach the range's end or raise :class:`SourceError` or
        :class:`IoError`.
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
