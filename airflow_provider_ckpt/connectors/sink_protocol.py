"""Interfaces of sinks: the first claim of a batch wins, older epochs can claim nothing, and receipts are kept forever.

One conformance suite tests every connector's sink against these interfaces. No run deletes receipts from the sink, with
one exception: a fence may remove receipts of older epochs whose rows are gone, so that their batches can be sent again.

A :class:`Sink` runs in the process that holds the lease (no Spark, light imports), a :class:`Writer` inside a lane on a
Spark executor. Neither knows Airflow or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.batch_content import BatchContent, StoredDeadLetter
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.next_schema_version import TargetStep
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.schema_version import SchemaVersion, SourceColumn
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.file_lists import FileList

ROW_NUMBER = "__number"
"""Name of the first column of the rows that a writer gets: the int64 number of the row's record in its batch.

A position would not identify a row, since several rows may share one.
"""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Identity of a run in its sink: ids of its ledger and pipeline, which are part of every key there, and its epoch.

    The epoch is 0 in a process that has no lease and only reads.
    """

    ledger: str
    pipeline: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Claims:
    """State of a pipeline in its sink, which a run reads before it takes over: fence, ledgers, target and lost rows.

    :param epoch: highest epoch of the pipeline's fence, 0 if none
    :param ledgers: ids of all ledgers that have receipts or a fence in the sink for this pipeline
    :param target: identity of the target, which changes if the target is recreated under the same name (system
        identifier and table oid; Delta table id; Iceberg UUID; topic id); None if the target does not exist yet
    :param loss_evidence: sentence with evidence from the sink itself that delivered rows are gone although their
        receipts exist (truncated, rolled back …); None if there is no such evidence
    :param lost_batches: batches that have a receipt and whose rows are gone by that evidence; empty unless
        :meth:`Sink.receipts` leaves out their receipts
    """

    epoch: int = 0
    ledgers: frozenset[str] = frozenset()
    target: str | None = None
    loss_evidence: str | None = None
    lost_batches: frozenset[BatchKey] = frozenset()


class Sink(Protocol):
    """Control side of a sink: checks, fence and receipts.

    Methods raise :class:`SinkError`, :class:`IoError` or :class:`ConfigError`.
    """

    exactly_once: bool

    @property
    def location(self) -> str:
        """Address of the target, without secrets and the same in every run: ``postgres://host:5432/db/public.a``."""

    def check(self) -> None:
        """Raise an error if the sink cannot be reached, or the target is missing or not writable; change nothing."""

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error, before anything is sent, if rows of these columns cannot be written to the target as it is.

        :param columns: name and Spark SQL type of each column, in order
        :raises ConfigError: naming the unsuitable columns and the remedy
        """

    def claims(self) -> Claims:
        """Return the state of the pipeline in its sink: fence, ledgers with receipts, target, evidence of lost rows."""

    def create_bookkeeping(self) -> None:
        """Create the tables or topics for receipts, fence and dead letters that are missing.

        A run calls this after all checks have passed, so that a refused pipeline leaves nothing in the sink.

        :raises ConfigError: if the user may not create them, or existing ones cannot be used
        """

    def fence(self, epoch: int) -> None:
        """Raise the fence to a run's epoch: when this returns, no transaction of an older epoch can commit any more.

        :param epoch: epoch of the run
        :raises FencedError: if the fence is at a newer epoch
        """

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield this ledger's receipts for the pipeline that the ledger does not know yet, in the order of their keys.

        The receipts are final once :meth:`fence` has returned.

        :param known: for each partition, the generation and position up to which the ledger knows all receipts; the
            receipts of any other partition are all yielded
        :raises ReceiptsUnreadableError: after the readable receipts, if others are gone or damaged
        """

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches that have no receipt in the sink, or whose rows the sink knows to be gone.

        :param keys: batches of this ledger and pipeline whose receipt the ledger has seen
        """

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, in the order given; each time in the same order.

        :param sources: attempts that a receipt names; dead letters of other attempts do not count
        """

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition is going to send, in case the ledger is lost.

        :param partition: id of the side partition
        :param replay: references to the dead letters, in the order in which they will be sent
        """

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of the given side partitions; a partition without a stored replay is left out."""

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered files before anything of them is sent, in case the ledger is lost or restored."""

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of source files whose first file has at least the given ordinal, in any order.

        :param first: the ordinal: number of the file in the order of discovery
        """

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in the target, or None if it is not known.

        :param exact: whether to count the rows at any cost; otherwise they are counted only if that is cheap
        """

    def close(self) -> None:
        """Close the connections to the sink."""


@runtime_checkable
class WrapsSink(Protocol):
    """A sink that passes the calls of :class:`Sink` on to another sink."""

    @property
    def wrapped(self) -> Sink:
        """The sink to which the calls are passed."""


def unwrapped(sink: Sink) -> Sink:
    """Return the sink that the connector itself has opened; the optional interfaces of a sink are those of this object.

    :param sink: a sink, which may wrap another one
    """
    while isinstance(sink, WrapsSink):
        sink = sink.wrapped
    return sink


@runtime_checkable
class FileBasedSink(Protocol):
    """A sink whose target consists of files and counts rows by metadata, so that a lost file changes no count."""

    def damaged_files(self) -> Iterator[str]:
        """Yield a sentence for each file of the target that is missing or not as it was written."""


@runtime_checkable
class SinkWithTargetSnapshot(Protocol):
    """A sink that stores, beside its fence, a snapshot: a description of its target.

    A later run compares the target with the snapshot, to detect that delivered rows are gone although their receipts
    exist.
    """

    def store_target_snapshot(self, epoch: int) -> None:
        """Store a snapshot of the target's present state; do nothing if the fence has another epoch by now.

        :param epoch: epoch of the run, which has delivered at least one batch
        """


@runtime_checkable
class ComparesTargets(Protocol):
    """A sink that explains how the target's identity differs from the identity that it had when runs wrote to it."""

    def compare_targets(self, before: str, now: str) -> str | None:
        """Return the part of an error message that describes how two identities differ, with the usual causes.

        An example is ``the target is not the one that was written: it was … and is … (another server or table)``. The
        result is None if nothing differs, or the identities cannot be compared.

        :param before: identity of the target to which earlier runs have written
        :param now: identity of the target as it is now
        """


@runtime_checkable
class SinkThatCreatesTarget(Protocol):
    """A sink that creates a missing target with the source's columns, in :meth:`Sink.create_bookkeeping`.

    Until then nothing is changed: :meth:`Sink.check` and :meth:`Sink.check_columns` judge the target that would be
    created, and :meth:`Sink.claims` reports no identity. If the pipeline's fence exists and the target does not,
    the target was lost, which :meth:`Sink.claims` reports.
    """

    def create_target_from(self, columns: Callable[[], Sequence[SourceColumn]]) -> None:
        """Set the columns with which a missing target is created.

        :param columns: function that returns the columns of the newest schema version, or the source's columns if there
            is no version; called only if the target is missing
        """


@runtime_checkable
class SinkWithSchemaChanges(Protocol):
    """A sink that can change the columns of its target to those of a new schema version of the source.

    Each schema version whose changes were made has a receipt in the sink.
    """

    def schema_versions(self) -> Sequence[SchemaVersion]:
        """Return the schema versions of this ledger's pipeline that have a receipt, in any order."""

    def apply_schema_version(self, epoch: int, version: SchemaVersion, steps: Sequence[TargetStep]) -> None:
        """Claim the receipt of a schema version and change the target, in one transaction.

        If the database commits each change of columns by itself, the sink stores first that the change begins. Then
        :meth:`Sink.fence` of the next run completes a change that has no receipt.

        :param epoch: epoch of the run
        :param version: the version
        :param steps: the changes of the target; those that were already made are skipped
        :raises ConfigError: if a column of the target cannot store the source's values; nothing was changed
        :raises FencedError: if the fence is at a newer epoch; nothing was changed
        :raises SinkError: if the version has a receipt already; nothing was changed
        """


@runtime_checkable
class ReplacingSink(Protocol):
    """A sink that can replace all rows of its target by the rows that the batches of a refresh have staged."""

    def prepare_staging(self, epoch: int, generation: int, abandoned_from: int | None) -> None:
        """Remove the rows that earlier refreshes of the pipeline have staged, so that a new refresh can stage its own.

        A sink whose staged files become files of the target keeps those of published refreshes. It removes only the
        files of refreshes that can never be published: those of the generations from ``abandoned_from`` on, and those
        whose publishing batch has the receipt ``void``.

        :param epoch: epoch of the run
        :param generation: generation of the new refresh
        :param abandoned_from: first of the consecutive generations directly before ``generation`` that were refreshes
            and were not published; None if there are none (:attr:`.RefreshExtent.abandoned_from`)
        :raises FencedError: if the fence is at a newer epoch; nothing is removed then
        """

    def row_counts(self, key: BatchKey) -> tuple[int, int]:
        """Return the number of rows that a refresh has staged, as its receipts count them, and that of the target.

        :param key: the batch that publishes the refresh
        """

    def is_staged(self, key: BatchKey, rows_end: int) -> bool:
        """Return whether the sink has all rows of a refresh, so that :meth:`publish` would find it complete.

        :param key: the batch that publishes the refresh
        :param rows_end: position after the last one that may contain rows
        """

    def publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        """Replace the target's rows by the staged ones, with the receipt of the publishing batch, in one transaction.

        Readers of the target see the old rows until then, and the new rows afterwards. With the instruction ``void``,
        only the receipt is claimed. If the batch has a receipt already, nothing is written.

        The limits are checked against a new count of the target's rows, taken when the rows are replaced. This count
        may differ from the result of :meth:`row_counts`, since others may have written to the target in between.

        :param task: the batch that publishes; the positions before its range contain the rows
        :param epoch: epoch of the run
        :param limits: how much smaller than the target the refresh may be; if it is smaller, nothing is published.
            None if a user has approved the refresh
        :return: the outcome; ``failed`` with the error if nothing was published, as when a range has no receipt;
            ``not_attempted`` if a limit is exceeded
        :raises FencedError: if the fence is at a newer epoch
        """


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer of a writer whose sink refuses some rows of a batch; nothing of the batch is committed.

    :param errors: error of each refused row, by row number; not empty
    """

    errors: Mapping[int, ErrorInfo]

    def __post_init__(self) -> None:
        if not self.errors:
            raise ValueError("Refused needs at least one refused row; else the batch would be retried without end")


class Writer(Protocol):
    """Writing side of a sink; each lane has its own writer, whose connection stays open across batches."""

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Claim the verdict that the task's instruction requests, and write rows and dead letters, in one transaction.

        With the instruction ``deliver``, ``content`` has rows and dead letters; with ``reject``, all records are dead
        letters; with ``void``, ``content`` is empty. The first claim of a batch wins: if the batch has a receipt
        already, nothing is written, and the outcome has that receipt and ``receipt_existed``. The writer of a two-phase
        sink stages the batch instead, and the outcome is ``staged``. A failed batch raises nothing: the outcome is
        ``failed`` with the error, and everything written is rolled back.

        If the sink refuses some rows (a constraint, a value that does not fit), the writer returns :class:`Refused`,
        and the lane calls the writer again with the other rows. Until that call, the writer may keep open a transaction
        in which the other rows are already written. The writer rolls this transaction back if the next call has another
        task or other rows, or if the writer is closed.

        :param task: the batch, its attempt and instruction
        :param content: the batch's rows and dead letters
        :raises FencedError: if the fence is at a newer epoch
        """

    def close(self) -> None:
        """Close the connections to the sink; an open transaction is rolled back."""


class Committer(Protocol):
    """Second phase of a two-phase sink: commits the batches that the lanes of a wave have staged.

    It runs once a wave, in the process that started the Spark job.
    """

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit staged batches, and return the final outcome of each batch.

        In a pipeline with ``strategy: pinned``, which keeps the order of each partition, the committed batches are a
        contiguous prefix of the partition's: after a failed batch, later batches of its partition are not attempted. In
        any other pipeline, batches are independent.

        :param staged: outcomes that the lanes returned for the batches that they staged
        :raises FencedError: if the fence is at a newer epoch
        """
