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
"""Key of a partition's state (:attr:`Plan.states`): the position before which the source already contains records.

Some of these may not be readable yet. Lag is counted up to this position.
"""

WITNESS = "witness"
"""Key in a partition's state: what the last planning saw of the source. The next planning compares the source with it,
to detect positions below the checkpoint that were assigned since. A rewind removes it; a recovery that accounts for all
records found replaces it."""


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A part of a source with an order of its own.

    :param id: short and stable; appears in batch names
    :param identity: identifies the object itself (topic id; system identifier and table oid; resolved directory), so
        that a recreated one is a clear error instead of a silent restart
    """

    id: str
    identity: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A discovered file, recorded permanently in the order of discovery.

    :param ordinal: number in discovery order, from 0
    :param path: absolute path
    :param base: position of its first byte: the sum of the sizes of all files before it
    :param size: number of bytes (of rows for Parquet)
    :param etag: identifies the content; changes when the file does (modification time in ns, size and inode, or the
        object store's etag)
    """

    ordinal: int
    path: str
    base: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Start:
    """Base of a partition at its first start.

    :param position: the base
    :param files: files that the base was counted on, in order (files source); they are recorded with it, so that the
        base means the same bytes even if other files appear before the first planning
    """

    position: int
    files: Sequence[SourceFile] = ()


@dataclass(frozen=True, slots=True)
class RangeToPlan:
    """A range of one partition to split into batches.

    :param partition: its id
    :param start: first position to plan
    :param end: end of the range (for a gap to be planned again), or None for as far as the source reaches. If it equals
        ``start`` there is nothing to split, and only the bound is requested
    """

    partition: str
    start: int
    end: int | None = None

    @property
    def needs_bound(self) -> bool:
        """Return whether planning must determine how far the source reaches."""
        return self.end is None or self.end == self.start


FindUnreceipted = Callable[[str, Sequence[Range]], Sequence[Range] | None]
"""Function that returns the records of some ranges of a partition, below its plan, whose positions are in no receipt.

It returns None if this is not known for all of the ranges.
"""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Arguments of one planning.

    :param ranges: ranges to plan, oldest first
    :param records_per_batch: records of a batch, exact where the source can count; None if the source chooses
    :param max_records: approximate maximum of records to plan (back-pressure); at least one batch is planned if there
        are records
    :param files: files discovered so far (files source)
    :param states: :attr:`Plan.states` of the previous planning, by partition
    :param committed: per partition, the position before which every batch has its verdict
    :param lag_only: whether only the lag is measured; the source then waits at most a moment for a bound
    :param find_unreceipted: function that compares what the source shows below the plan with the receipts; None if not
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

    :param partition: its id
    :param range: positions of the batch
    :param records: expected number of records, if known
    :param expired: whether the source has lost all of them (retention); an event reports this, and a user skips the
        batch
    """

    partition: str
    range: Range
    records: int | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of planning; the ledger stores all of it in one transaction.

    :param batches: contiguous per partition, starting where the request's ``todo`` starts
    :param files: newly discovered files
    :param bounds: per partition, the position before which no new records can appear
    :param states: per partition, values that the source wants back at the next planning
    :param more: whether the source has more than was planned (``max_records`` reached)
    :param refused: one error for each part of the source that cannot be read; the run does the rest, then fails
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
    :param columns: name and Spark SQL type, in order
    """

    raw: bool
    columns: Sequence[tuple[str, str]]


class Source(Protocol):
    """Planning side of a source. Errors are :class:`SourceError` or :class:`ConfigError`."""

    def check(self) -> None:
        """Raise an error if the source cannot be reached, or what the pipeline names does not exist or does not fit."""

    def partitions(self) -> Sequence[SourcePartition]:
        """Return every partition that exists now."""

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the base for a first start: ``earliest``, ``latest`` or a position."""

    def shape(self) -> RecordShape:
        """Return the columns that readers yield."""

    def plan(self, request: PlanRequest) -> Plan:
        """Split new records (or a gap) into batches; no batch may end beyond a closed bound."""

    def may_have_late_records(self) -> bool:
        """Return whether records may still appear in a range that was read, although its bound was closed."""

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:
        """Return a digest of the positions of all records in each range as of now.

        Return None if a range that was read can never show more records.
        """

    def positions(self, partition: str, span: Range) -> Sequence[int]:
        """Return the position of every record in a range now, in order; only where :meth:`digests` returns digests."""

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """Return the same tasks with ``detail`` filled in for the reader.

        :param tasks: batches to read
        :param files: all recorded files (files source)
        :raises SourceError: if a task can no longer be read; if the error names a batch, it concerns only that one
        """

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """Evidence from a source for which its plannings fail.

    :param description: the evidence, as a sentence
    :param late_ranges: ranges of the records concerned; empty if nothing is lost yet; None if reading late records does
        not repair it
    :param first_step: the action to take first, if any
    """

    description: str
    late_ranges: Sequence[Range] | None
    first_step: str = ""


@dataclass(frozen=True, slots=True)
class PlanningAlarm:
    """Evidence for which the next planning of a partition would fail.

    :param evidence: all the evidence
    :param state: state to store once all of it is accounted for; the next planning compares with it
    """

    evidence: Sequence[SourceEvidence]
    state: Mapping[str, Any]


@runtime_checkable
class WatchedSource(Protocol):
    """A source that detects, from the state of its last planning, positions below the plan that were assigned since."""

    def watch(
        self, partition: str, end: int, state: Mapping[str, Any], unread: FindUnreceipted | None = None
    ) -> PlanningAlarm | None:
        """Return why a partition's next planning would fail; None if it would not.

        The next planning fails if positions below the plan were assigned since the last one.

        :param partition: its id
        :param end: end of its plan
        :param state: what the last planning stored
        :param unread: function that compares with the receipts, as for a planning
        """


class Reader(Protocol):
    """Reading side of a source, one per lane; keeps its connection across batches."""

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of the task's range in position order: :data:`POSITION`, then the columns of the shape.

        Yields nothing for an empty range. Must reach the range's end or raise :class:`SourceError` or :class:`IoError`.
        """

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a record.

        These are ``source-table``, ``source-file`` or ``source-topic``, and ``source-partition`` and
        ``source-position``.
        """

    def close(self) -> None:
        """Close connections."""


class SparkFedReader(Reader, Protocol):
    """Reader of a source that Spark itself reads: it yields records that Spark passed to it."""

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Accept the records of a batch, which :meth:`read` is to yield."""
