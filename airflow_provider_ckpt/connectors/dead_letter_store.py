"""Store dead letters outside the sink, in Kafka, PostgreSQL or files: the interface, and wrappers of sink and writer.

The dead letters of a batch are written durably before the sink claims the batch's receipt; the sink itself stores only
how many there are. A dead letter counts only if the receipt names the attempt that wrote it, so dead letters of a
failed attempt are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.dead_letter_retries import store_dead_letters
from airflow_provider_ckpt.connectors.outputs import NamesOutputs, Output
from airflow_provider_ckpt.connectors.sink_protocol import (
    Claims,
    Refused,
    Sink,
    Writer,
)
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.connectors.file_lists import FileList

_CLAIMED = frozenset({AttemptOutcome.DELIVERED, AttemptOutcome.REJECTED, AttemptOutcome.VOID, AttemptOutcome.STAGED})


class DeadLetterStore(Protocol):
    """Interface of a store outside the sink for the dead letters of one pipeline and ledger.

    Methods raise :class:`CkptError` or one of its subclasses.
    """

    def check(self) -> None:
        """Create the topic, table or directory if it is missing; raise an error if it is unreachable or unsuitable."""

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        """Write dead letters of one attempt durably; writing the same dead letters again is harmless.

        If this raises an error, the caller calls again (see :func:`~.dead_letter_retries.store_dead_letters`).

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far; a dead letter's number is its index here
        :param first: number of the first dead letter to write; those before it were stored by an earlier call
        """

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the stored dead letters of the given attempts, attempt by attempt in the order given.

        :param sources: attempts that a receipt names; dead letters of other attempts do not count
        """

    def close(self) -> None:
        """Close the connections to the store."""


class WriterWithDeadLetterStore:
    """Writer of a sink whose dead letters are stored elsewhere: it stores them there, then calls the sink's own writer.

    :param writer: the sink's writer
    :param store: the store for dead letters
    :param queue: the pipeline's dead letter settings
    """

    def __init__(self, writer: Writer, store: DeadLetterStore, queue: DeadLetterQueue) -> None:
        self._writer = writer
        self._store = store
        self._queue = queue
        self._stored: tuple[BatchTask | None, int] = (None, 0)

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Store the batch's dead letters in the dead letter store, then deliver its rows to the sink.

        If the sink refuses rows, the caller turns them into dead letters and calls again with the same task; that call
        stores only the dead letters that were added. See :meth:`.sink_protocol.Writer.deliver`.

        :raises DeadLetterQueueError: if a dead letter cannot be stored; then nothing of the batch is delivered or
            claimed
        """
        checked_counts(content, task, self._queue)
        dead_letters = content.dead_letters
        latest, stored = self._stored
        first = stored if latest is task else 0
        if len(dead_letters) > first:
            store = partial(self._store.store, task, dead_letters, first)
            store_dead_letters(store, dead_letters[first:], task, self._queue, refusal=CkptError)
        self._stored = task, len(dead_letters)
        result = self._writer.deliver(task, replace(content, dead_letters=[], already_stored=len(dead_letters)))
        return result if isinstance(result, Refused) else _with_error_types(result, dead_letters)

    def close(self) -> None:
        """Close the connections to the sink and to the dead letter store."""
        self._writer.close()
        self._store.close()


class SinkWithDeadLetterStore:
    """Sink whose dead letters are in a dead letter store. All other calls go to the wrapped sink; see :class:`Sink`.

    Of a sink's optional interfaces, this class implements only :class:`NamesOutputs`. To use another one, a caller
    takes the wrapped sink from :func:`~.sink_protocol.unwrapped`.

    :param sink: the pipeline's sink
    :param store: the store from which the dead letters are read
    """

    def __init__(self, sink: Sink, store: DeadLetterStore) -> None:
        self._sink = sink
        self._store = store
        self.exactly_once = sink.exactly_once

    @property
    def wrapped(self) -> Sink:
        """The pipeline's own sink, to which the rows are delivered, but no dead letters."""
        return self._sink

    @property
    def location(self) -> str:
        """Address of the wrapped sink's target; see :attr:`Sink.location`."""
        return self._sink.location

    def check(self) -> None:
        """Raise an error if the wrapped sink or its target cannot be used; see :meth:`Sink.check`."""
        self._sink.check()

    def create_bookkeeping(self) -> None:
        """Create the sink's missing bookkeeping, then the dead letter store; see :meth:`Sink.create_bookkeeping`."""
        self._sink.create_bookkeeping()
        self._store.check()

    def outputs(self) -> Sequence[Output]:
        """Return the outputs of the sink and of the dead letter store; see :class:`NamesOutputs`."""
        named = [part.outputs() for part in (self._sink, self._store) if isinstance(part, NamesOutputs)]
        return [output for outputs in named for output in outputs]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error if rows of these columns cannot be written to the target; see :meth:`Sink.check_columns`.

        :param columns: name and Spark SQL type of each column
        :raises ConfigError: naming the columns
        """
        self._sink.check_columns(columns)

    def claims(self) -> Claims:
        """Return the fence's epoch, the ledgers with receipts and the target's identity; see :meth:`Sink.claims`."""
        return self._sink.claims()

    def fence(self, epoch: int) -> None:
        """Shut out all older epochs from the sink; see :meth:`Sink.fence`."""
        self._sink.fence(epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the sink's receipts that the ledger does not know yet; see :meth:`Sink.receipts`."""
        return self._sink.receipts(known)

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return the given batches that have no receipt in the sink; see :meth:`Sink.batches_without_receipt`."""
        return self._sink.batches_without_receipt(keys)

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts from the dead letter store; see :meth:`Sink.dead_letters`."""
        return self._store.dead_letters(sources)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store in the sink a list of the dead letters that a side partition sends; see :meth:`Sink.store_replay`."""
        self._sink.store_replay(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the replays that the sink has stored for the given side partitions; see :meth:`Sink.replays`."""
        return self._sink.replays(partitions)

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files in the sink; see :meth:`Sink.store_file_list`."""
        self._sink.store_file_list(files)

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the sink's lists of source files from an ordinal on; see :meth:`Sink.stored_file_lists`."""
        return self._sink.stored_file_lists(first)

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in the target, None if unknown; see :meth:`Sink.target_rows`."""
        return self._sink.target_rows(exact=exact)

    def close(self) -> None:
        """Close the connections to the sink and to the dead letter store."""
        self._sink.close()
        self._store.close()


def _with_error_types(outcome: Outcome, dead_letters: Sequence[DeadLetter]) -> Outcome:
    """Return an outcome with the number of dead letters by error type, if this attempt claimed or staged the batch.

    An outcome of any other attempt is returned unchanged: its dead letters do not count, or an earlier receipt counts
    them.

    :param outcome: result of the sink's writer, which did not see the dead letters
    :param dead_letters: the batch's dead letters, which are in the dead letter store
    """
    if outcome.receipt_existed or outcome.outcome not in _CLAIMED:
        return outcome
    return replace(outcome, dead_letters=dict(Counter(dead_letter.error.type.value for dead_letter in dead_letters)))
