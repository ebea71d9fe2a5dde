"""Interfaces of sources and sinks; one conformance suite for each tests the connectors against them.

Each has a side that runs in the process holding the lease (``Source``, ``Sink``; no Spark, light imports) and a side
that runs inside a lane on a Spark executor (``Reader``, ``Writer``). None of them knows Airflow or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.batch_content import BatchContent, StoredDeadLetter
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.dead_letters import AttemptKey, Replay
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipts import KnownReceipts
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.file_lists import FileList

POSITION = "__pos"
"""Name of the int64 column with each record's source position, first in every Arrow batch that a reader yields."""

ROW_NUMBER = "__number"
"""Name of the int64 column that numbers a batch's rows, first in a writer's rows; several rows may share a position."""

SOURCE_END = "reaches"
"""Key of a partition's state (:attr:`Plan.states`): the position before which the source already contains records.

Some of these may not be readable yet. Lag is counted up to this position.
"""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials of a source or sink: an Airflow connection, reduced to what drivers need."""

    id: str
    type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict with the password: only for files of mode 0600 and Spark's own channels."""
        return {name: getattr(self, name) for name in self.__slots__} | {"extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Connection:
        """Return the connection that :meth:`to_json` wrote."""
        return cls(**data)


# Sources


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

    :param todo: ranges to plan, oldest first
    :param records_per_batch: records of a batch, exact where the source can count; None if the source chooses
    :param max_records: approximate maximum of records to plan (back-pressure); at least one batch is planned if there
        are records
    :param files: files discovered so far (files source)
    :param states: :attr:`Plan.states` of the previous planning, by partition
    :param committed: per partition, the position before which every batch has its verdict
    :param look: whether only the lag is measured; the source then waits at most a moment for a bound
    :param unread: function that compares what the source shows below the plan with the receipts; None if not available
    """

    todo: Sequence[RangeToPlan]
    records_per_batch: int | None
    max_records: int
    files: Sequence[SourceFile] = ()
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    look: bool = False
    unread: FindUnreceipted | None = None


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

    def late(self) -> bool:
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

    :param seen: the evidence, as a sentence
    :param rows: ranges of the records concerned; empty if nothing is lost yet; None if reading late records does not
        repair it
    :param first: the action to take first, if any
    """

    seen: str
    rows: Sequence[Range] | None
    first: str = ""


@dataclass(frozen=True, slots=True)
class PlanningAlarm:
    """Evidence for which the next planning of a partition would fail.

    :param told: all the evidence
    :param state: state to store once all of it is accounted for; the next planning compares with it
    """

    told: Sequence[SourceEvidence]
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

    def hold(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Accept the records of a batch, which :meth:`read` is to yield."""


# Sinks


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Identity of the writer: part of every key in the sink."""

    ledger: str
    pipeline: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Claims:
    """State of a pipeline in its sink before a run takes over.

    :param epoch: highest epoch of its fence, 0 if none
    :param ledgers: ids of all ledgers that have receipts or a fence there for this pipeline
    :param target: identity of the target, which changes if it is recreated under the same name (system identifier and
        table oid; Delta table id; Iceberg UUID; topic id); None if it does not exist yet
    :param set_back: sentence with evidence from the sink itself that delivered rows are gone although their receipts
        exist (truncated, rolled back …); None if there is no such evidence
    :param gone: batches of those rows, if :meth:`Sink.receipts` leaves out their receipts
    """

    epoch: int = 0
    ledgers: frozenset[str] = frozenset()
    target: str | None = None
    set_back: str | None = None
    gone: frozenset[BatchKey] = frozenset()


class Sink(Protocol):
    """Control side of a sink. Errors are :class:`SinkError`, :class:`IoError` or :class:`ConfigError`."""

    exactly_once: bool

    @property
    def location(self) -> str:
        """Address of the target, without secrets and the same in every run: ``postgres://host:5432/db/public.orders``."""

    def check(self, *, create: bool = True) -> None:
        """Raise an error if the sink cannot be reached, or the target is missing or not writable.

        :param create: whether to create the tables, topics or directories of the bookkeeping; if not, nothing is
            changed
        """

    def fits(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error, before anything is sent, if rows of these columns cannot be written to the target as it is.

        :param columns: name and Spark SQL type, in order
        :raises ConfigError: naming the columns and what to do
        """

    def claims(self) -> Claims:
        """Return the fence, the ledgers that have receipts, and the target's identity."""

    def fence(self, epoch: int) -> None:
        """Raise the fence to an epoch: when this returns, no transaction of an older epoch can commit any more.

        :raises FencedError: if the sink has a newer epoch
        """

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield this ledger's receipts for the pipeline that the ledger does not know yet, in the order of their keys.

        They are final once :meth:`fence` has returned.

        :param known: what the ledger knows, by partition; all receipts of other partitions are yielded
        :raises ReceiptsUnreadableError: after the readable ones, if others are gone or damaged
        """

    def missing(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return the batches that have no receipt here, or whose rows the sink knows to be gone.

        :param keys: batches of this ledger and pipeline whose receipt the ledger has seen
        """

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of some attempts, attempt by attempt in the order given, each in a stable order.

        The caller passes attempts that a receipt names; what any other attempt left does not count.
        """

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store which dead letters a side partition sends, before any of them is sent, in case the ledger is lost."""

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of these side partitions; those that never sent anything are left out."""

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered files before anything of them is sent, in case the ledger is lost or restored."""

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of files that begin at an ordinal or later, in any order."""

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in the target, or None if it is not known.

        :param exact: count them whatever it costs; otherwise only if it is cheap
        """

    def close(self) -> None:
        """Close connections."""


@runtime_checkable
class FileBasedSink(Protocol):
    """A sink whose target consists of files that can be lost one by one, which its row count does not show."""

    def damaged_files(self) -> Iterator[str]:
        """Yield a sentence for each file of the target that is missing or not as it was written."""


@runtime_checkable
class SinkWithWitness(Protocol):
    """A sink that detects, by a witness stored with the fence, that rows are gone although their receipts exist."""

    def store_witness(self, epoch: int) -> None:
        """Store a witness of the target as it is now, if the fence is still at this epoch.

        :param epoch: epoch of the run, which has delivered something
        """


@runtime_checkable
class ComparesTargets(Protocol):
    """A sink that describes how the target's identity differs from the one that was written to."""

    def compare_targets(self, before: str, now: str) -> str | None:
        """Return the parts that differ and ordinary reasons, as a clause; None if the identities cannot be compared.

        :param before: identity of the target that was written
        :param now: identity of the target as it is
        """


class Writer(Protocol):
    """Writing side of a sink, one per lane; keeps its connection across batches."""

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Claim the task's verdict and carry out its effect, in one transaction.

        ``deliver`` writes the rows and dead letters; ``reject`` gets all records as ``content.letters`` and no rows;
        ``void`` gets nothing. If a receipt exists already, nothing is written; the outcome has that receipt and
        ``found``. A two-phase sink returns ``staged``. A failed batch raises nothing: the outcome is ``failed`` with
        the error, and what was written is rolled back.

        :param task: the batch, its attempt and instruction
        :param content: its rows and dead letters
        :raises FencedError: if the fence is at a newer epoch
        """

    def close(self) -> None:
        """Close connections."""


class Committer(Protocol):
    """Second phase of a two-phase sink; runs once a wave in the process that called Spark."""

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit staged batches, and return the final outcome of each.

        In a pinned pipeline the committed batches are a contiguous prefix of each partition: after a batch that failed,
        later ones of its partition are not attempted. In any other pipeline, batches are independent.

        :raises FencedError: if the fence is at a newer epoch
        """
