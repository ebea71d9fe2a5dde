"""What a source and a sink must be able to do; one conformance suite each holds them to it.

Each has a half that runs in the process holding the lease (``Source``, ``Sink``; no Spark, light imports) and a half
that runs inside a lane on a Spark executor (``Reader``, ``Writer``). Neither knows Airflow or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.batch_content import Content, KeptLetter
from airflow_provider_ckpt.connectors.record_positions import Digest
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.dead_letters import AttemptKey, Replay
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipts import Known
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.file_lists import FileList

POSITION = "__pos"
"""Name of the int64 column that carries each record's source position, first in every Arrow batch a reader yields."""

NUMBER = "__number"
"""Name of the int64 column that tells a batch's rows apart, first in what a writer gets: positions may be shared."""

REACHES = "reaches"
"""Key of a partition's state (:attr:`Plan.states`): the position before which the source holds records already, where
some of them cannot be read yet. Lag is counted up to there."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a source or sink is and how to get in: an Airflow connection, reduced to what drivers need."""

    id: str
    type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict that holds the password: only for files of mode 0600 and Spark's own channels."""
        return {name: getattr(self, name) for name in self.__slots__} | {"extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Connection:
        """The connection that :meth:`to_json` wrote."""
        return cls(**data)


# Sources


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A part of a source with an order of its own.

    :param id: short and stable; appears in batch names
    :param identity: names the very thing (topic id; system identifier and table oid; resolved directory), so that a
        recreated one is a clear error instead of a silent restart
    """

    id: str
    identity: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A discovered file, recorded for good in the order of discovery.

    :param ordinal: from 0, in discovery order
    :param base: the position of its first byte: the sum of the sizes of all files before it
    :param size: bytes
    :param etag: changes when the file does (modification time in ns and inode, or the object store's etag)
    """

    ordinal: int
    path: str
    base: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition begins.

    :param position: its base
    :param files: the files that the base was counted on, in order (files source); they are recorded with it, so that
        the base means the same bytes whatever turns up before the first plan
    """

    position: int
    files: Sequence[SourceFile] = ()


@dataclass(frozen=True, slots=True)
class Todo:
    """A stretch of one partition to cut into batches.

    :param start: first position to plan
    :param end: stop here (a gap to be planned again), or None: as far as the source reaches. Where it is ``start``
        there is nothing to cut, and only the bound is asked for
    """

    partition: str
    start: int
    end: int | None = None

    @property
    def asks_bound(self) -> bool:
        """Whether it needs to be known how far the source reaches."""
        return self.end is None or self.end == self.start


Unread = Callable[[str, Sequence[Range]], Sequence[Range] | None]
"""Function that returns those records of some stretches of a partition, below its plan, whose positions no receipt has;
None where that cannot be told of all of them."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What planning is asked for.

    :param todo: stretches to plan, oldest first
    :param records_per_batch: obeyed exactly where the source can count, or None: the source picks a good size
    :param max_records: plan about this many records at most (back-pressure); at least one batch if there is any
    :param files: what is already discovered (files source)
    :param states: what :attr:`Plan.states` said last time, by partition
    :param committed: per partition, the position before which everything has its verdict
    :param look: whether somebody only asks how much there is: then no bound is waited for longer than a moment
    :param unread: asks the receipts for what the source shows below the plan; None if nobody can
    """

    todo: Sequence[Todo]
    records_per_batch: int | None
    max_records: int
    files: Sequence[SourceFile] = ()
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    look: bool = False
    unread: Unread | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A range to be recorded as a batch, with the number of records it is thought to hold.

    :param expired: whether the source has lost all of it (retention); an event says so, and a person lets it go
    """

    partition: str
    range: Range
    records: int | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What planning found; the ledger stores all of it in one transaction.

    :param batches: contiguous per partition, starting where the request's ``todo`` starts
    :param files: newly discovered files, to be recorded in the same transaction
    :param bounds: per partition, the position before which nothing new can appear any more
    :param states: per partition, what the source wants to be told at the next planning
    :param more: whether the source holds more than was planned (``max_records`` reached)
    :param refused: parts of the source that cannot be read, each by an error: the run does the rest, then fails
    :param notices: what is probably not meant, one line each
    """

    batches: Sequence[PlannedBatch] = ()
    files: Sequence[SourceFile] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    more: bool = False
    refused: Sequence[CkptError] = ()
    notices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a reader yields beside :data:`POSITION`.

    :param raw: True: one ``value`` column of bytes, to be decoded by the transform, and possibly ``key``, ``headers``
        and ``timestamp``; False: typed columns
    :param columns: name and Spark SQL type, in order
    """

    raw: bool
    columns: Sequence[tuple[str, str]]


class Source(Protocol):
    """The planning half of a source. Errors are :class:`SourceError` or :class:`ConfigError`."""

    def check(self) -> None:
        """Fail clearly if the source cannot be reached, or what it names does not exist or does not fit."""

    def partitions(self) -> Sequence[SourcePartition]:
        """Every partition that exists now."""

    def start(self, partition: str, start_from: str | int) -> Start:
        """The base for a first start: ``earliest``, ``latest`` or a position."""

    def shape(self) -> Shape:
        """What readers yield."""

    def plan(self, request: PlanRequest) -> Plan:
        """Cut what is new (or a gap) into batches; no batch may end beyond a closed bound."""

    def late(self) -> bool:
        """Whether records may still turn up in a range that was read, though its bound was closed."""

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[Digest] | None:
        """Return a digest of all records' positions in each range as of now, or None where a range that was read can
        never show more."""

    def positions(self, partition: str, span: Range) -> Sequence[int]:
        """The position of every record in a range now, in order; where :meth:`digests` gives any."""

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """The same tasks with ``detail`` filled in for the reader.

        :raises SourceError: if a task cannot be read any more; where it names a batch, only that one
        """

    def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that a source has seen, for which its plannings fail.

    :param seen: as a sentence
    :param rows: where the records lie that it speaks of, empty if nothing is lost yet; None if reading late records
        does not make good for it
    :param first: what is to be done first, if anything
    """

    seen: str
    rows: Sequence[Range] | None
    first: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Evidence for which the next planning of a partition would fail.

    :param told: all that was seen
    :param state: state to keep once all of that is accounted for; the next planning compares with it
    """

    told: Sequence[Told]
    state: Mapping[str, Any]


@runtime_checkable
class WatchedSource(Protocol):
    """A source that tells by what the last planning saw whether positions below the plan were given out since."""

    def watch(self, partition: str, end: int, state: Mapping[str, Any], unread: Unread | None = None) -> Alarm | None:
        """Return why a partition's next planning would fail; None if it would not.

        The next planning fails if positions below the plan were given out since.

        :param partition: its id
        :param end: the end of its plan
        :param state: what the last planning kept
        :param unread: asks the receipts, as for a planning
        """


class Reader(Protocol):
    """The reading half of a source, one per lane; keeps its connection across batches."""

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """The records of the task's range: in position order: column :data:`POSITION`, then those of :class:`Shape`.

        Yields nothing for an empty range. Must reach the range's end or raise :class:`SourceError` or :class:`IoError`.
        """

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Dead-letter headers that say where a record came from: ``source-table``, ``source-file`` or
        ``source-topic``; ``source-partition``, ``source-position``."""

    def close(self) -> None:
        """Let go of connections."""


class CarriedReader(Reader, Protocol):
    """A reader of a source that Spark itself reads: it gives out records that somebody else has."""

    def hold(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Take the records of a batch, which :meth:`read` is to yield."""


# Sinks


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Who writes: part of every key in the sink."""

    ledger: str
    pipeline: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Claims:
    """What a sink holds of a pipeline before a run takes over.

    :param epoch: the highest epoch of its fence, 0 if none
    :param ledgers: ids of all ledgers that have receipts or a fence there for this pipeline
    :param target: the identity of the very target, which one that is made anew under the same name does not have
        (system identifier and table oid; Delta table id; Iceberg UUID; topic id); None if it does not exist yet
    :param set_back: a sentence that says by what the sink itself sees that rows delivered before are gone although its
        receipts stand (truncated, rolled back …); None if it sees nothing of the kind
    :param gone: batches whose rows those are, as far as :meth:`Sink.receipts` leaves their receipts out for it
    """

    epoch: int = 0
    ledgers: frozenset[str] = frozenset()
    target: str | None = None
    set_back: str | None = None
    gone: frozenset[BatchKey] = frozenset()


class Sink(Protocol):
    """The controlling half of a sink. Errors are :class:`SinkError`, :class:`IoError` or :class:`ConfigError`."""

    exactly_once: bool

    @property
    def location(self) -> str:
        """Address of the target, free of secrets and the same in every run: ``postgres://host:5432/db/public.orders``."""

    def check(self, *, create: bool = True) -> None:
        """Fail clearly if the sink cannot be reached, the target is missing or not writable; create own bookkeeping.

        :param create: whether to create what the bookkeeping is kept in; if not, nothing is changed
        """

    def fits(self, columns: Sequence[tuple[str, str]]) -> None:
        """Fail clearly, before anything is sent, if rows of these columns cannot go into the target as it is.

        :param columns: name and Spark SQL type, in order
        :raises ConfigError: naming the columns and what to do
        """

    def claims(self) -> Claims:
        """Whose receipts and which fence are there."""

    def fence(self, epoch: int) -> None:
        """A barrier: when it returns, no transaction of an older epoch can commit any more.

        :raises FencedError: if the sink holds a newer epoch
        """

    def receipts(self, known: Mapping[str, Known]) -> Iterator[Receipt]:
        """This ledger's receipts for the pipeline that are news, by partition; all of a partition that is not named.

        They come in the order of their keys, and are final once :meth:`fence` has returned.

        :raises ReceiptsUnreadableError: after those that can be read, if others are gone or damaged
        """

    def missing(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Those of these batches that have no receipt here, or one whose rows the sink knows to be gone.

        :param keys: batches of this ledger and pipeline whose receipt the ledger has seen
        """

    def letters(self, sources: Iterable[AttemptKey]) -> Iterator[KeptLetter]:
        """The dead letters that some attempts left, attempt by attempt as asked, each in an order that never changes.

        The caller names attempts that a receipt names; what any other attempt left counts for nothing.
        """

    def keep_replay(self, partition: str, replay: Replay) -> None:
        """Keep, for a ledger that is lost, which dead letters a side partition sends; before anything of it is sent."""

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """What was kept of these side partitions; of one that never was sent, nothing."""

    def keep_files(self, files: FileList) -> None:
        """Keep, for a ledger that is lost or restored, a list of discovered files; before anything of them is sent."""

    def kept_files(self, first: int) -> Sequence[FileList]:
        """The lists of files that begin at an ordinal or later, in any order."""

    def target_rows(self, *, exact: bool = False) -> int | None:
        """How many rows the target holds, or None where that cannot be told.

        :param exact: count them whatever it costs; otherwise only where it is cheap enough to ask
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A sink whose target is made of files that can be lost one by one, which its count of rows does not notice."""

    def damaged_files(self) -> Iterator[str]:
        """A sentence for each file of the target that is missing or not as it was written, naming it."""


@runtime_checkable
class KeepsWitness(Protocol):
    """A sink that tells by a witness of its own, kept with the fence, whether rows are gone although receipts stand."""

    def keep_witness(self, epoch: int) -> None:
        """Take and keep a witness of the target as it is now, if the fence still stands at this epoch.

        :param epoch: of the run that has delivered something
        """


@runtime_checkable
class ComparesTargets(Protocol):
    """A sink that says in words how the target's identity differs from the one that was written."""

    def compare_targets(self, before: str, now: str) -> str | None:
        """Return the parts that differ and ordinary reasons, as a clause; None if the identities cannot be compared.

        :param before: identity of the target that was written
        :param now: identity of the target as it is
        """


class Writer(Protocol):
    """The writing half of a sink, one per lane; keeps its connection across batches."""

    def deliver(self, task: BatchTask, content: Content) -> Outcome:
        """Claim the task's verdict and have its effect, in one transaction.

        ``deliver`` writes the rows and dead letters; ``reject`` gets all records as ``content.letters`` and no rows;
        ``void`` gets nothing. If a receipt exists already: no effect, the outcome carries it and ``found``. A two-phase
        sink returns ``staged``. Nothing is raised for a failed batch: the outcome says ``failed`` with the error, and
        what it wrote is rolled back. :class:`FencedError` is raised when a newer epoch holds the fence.
        """

    def close(self) -> None:
        """Let go of connections."""


class Committer(Protocol):
    """The second phase of a two-phase sink; runs once a wave in the process that called Spark."""

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit staged batches, and return the final outcome of each.

        In a pinned pipeline that is a contiguous prefix of each partition: after a batch that failed, later ones of its
        partition are not attempted. In any other, each batch stands for itself.

        :raises FencedError: when a newer epoch holds the fence
        """
