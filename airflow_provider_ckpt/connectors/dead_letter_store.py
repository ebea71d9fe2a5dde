"""Store dead letters: retry a store that refuses them, and wrap a sink whose dead letters are stored elsewhere.

A store outside the sink is in Kafka, PostgreSQL or files. The dead letters of a batch are then written durably before
the sink claims the batch's receipt; the sink only gets their number. They count only if the receipt names their
attempt, so dead letters of a failed attempt are never read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.outputs import NamesOutputs, Output
from airflow_provider_ckpt.connectors.sink_protocol import Claims, FileBasedSink, Refused, Sink, SinkWithWitness, Writer
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_index import AttemptKey
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.errors import CkptError, DeadLetterQueueError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.connectors.file_lists import FileList

RETRY_SECONDS = 1.0
"""Pause in seconds before a failed write of dead letters is retried (semantics, section 7)."""

_CLAIMED = frozenset({AttemptOutcome.DELIVERED, AttemptOutcome.REJECTED, AttemptOutcome.VOID, AttemptOutcome.STAGED})

T = TypeVar("T")


class DeadLettersRefusedError(CkptError):
    """Refusal of a batch's dead letters by a store that otherwise works; a retry may succeed."""


def store_dead_letters(
    store: Callable[[], T],
    dead_letters: Sequence[DeadLetter],
    task: BatchTask,
    queue: DeadLetterQueue,
    refusal: type[CkptError] = DeadLettersRefusedError,
) -> T:
    """Store dead letters of a batch; if they are refused, retry ``max_dlq_retries`` times, one second apart.

    :param store: function that stores the dead letters, possibly together with the rest of the batch
    :param dead_letters: the dead letters, for messages
    :param task: the batch, for messages
    :param queue: the pipeline's dead letter settings
    :param refusal: class of the errors after which ``store`` is called again; all others are passed on
    :return: the result of ``store``
    :raises DeadLetterQueueError: if all retries failed
    """
    retries = 0
    while True:
        try:
            return store()
        except refusal as error:
            if retries == queue.max_dlq_retries:
                raise DeadLetterQueueError(
                    f"{error.message.removesuffix('.')}. The batch's dead letters could not be stored, so nothing of "
                    "it was sent.",
                    batch=str(task.key),
                    position=dead_letters[0].position if error.position is None else error.position,
                    sqlstate=error.sqlstate,
                    hint=error.hint or "Repair the destination of dead_letter_queue, then run again.",
                ) from error
            retries += 1
            time.sleep(RETRY_SECONDS)


class DeadLetterStore(Protocol):
    """Store outside the sink for the dead letters of one pipeline and ledger.

    Methods raise :class:`CkptError` of any type.
    """

    def check(self) -> None:
        """Create the topic, table or directory if it is missing; raise an error if it is unreachable or unsuitable."""

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        """Write dead letters of one attempt durably; writing the same dead letters again is harmless.

        The caller retries (see :func:`store_dead_letters`).

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far; a dead letter's number is its index
        :param first: number of the first dead letter that is not stored yet
        """

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the stored dead letters of some attempts, attempt by attempt in the order given; see
        :meth:`Sink.dead_letters`.
        """

    def close(self) -> None:
        """Close the connections to the store."""


class WriterWithDeadLetterStore:
    """Writer that stores dead letters in a dead letter store, and passes the rest of each batch to the sink's writer.

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

        If the sink refuses rows, the caller turns them into dead letters and calls again; that call stores only those.

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
    """Sink whose dead letters are in a dead letter store. All other calls go to the wrapped sink; see :class:`Sink`."""

    def __init__(self, sink: Sink, store: DeadLetterStore) -> None:
        self._sink = sink
        self._store = store
        self.exactly_once = sink.exactly_once

    @property
    def location(self) -> str:
        """Address of the wrapped sink's target; see :attr:`Sink.location`."""
        return self._sink.location

    def check(self, *, create: bool = True) -> None:
        """Check the sink and, if ``create`` is set, the dead letter store; see :meth:`Sink.check`."""
        self._sink.check(create=create)
        if create:
            self._store.check()

    def outputs(self) -> Sequence[Output]:
        """Return the places that the sink and the dead letter store write to; see :class:`NamesOutputs`."""
        named = [part.outputs() for part in (self._sink, self._store) if isinstance(part, NamesOutputs)]
        return [output for outputs in named for output in outputs]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error if rows of these columns cannot be written to the target; see :meth:`Sink.check_columns`."""
        self._sink.check_columns(columns)

    def claims(self) -> Claims:
        """Return the fence, the ledgers with receipts and the target's identity; see :meth:`Sink.claims`."""
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
        """Yield the dead letters of some attempts from the dead letter store; see :meth:`Sink.dead_letters`."""
        return self._store.dead_letters(sources)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store in the sink which dead letters a side partition sends; see :meth:`Sink.store_replay`."""
        self._sink.store_replay(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the replays that the sink has stored for some side partitions; see :meth:`Sink.replays`."""
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

    def damaged_files(self) -> Iterator[str]:
        """Yield a sentence for each damaged file of the target; nothing if the target is not made of files."""
        return self._sink.damaged_files() if isinstance(self._sink, FileBasedSink) else iter(())

    def store_witness(self, epoch: int) -> None:
        """Store a witness of the target, if the sink is a :class:`SinkWithWitness`; otherwise do nothing."""
        if isinstance(self._sink, SinkWithWitness):
            self._sink.store_witness(epoch)

    def close(self) -> None:
        """Close the connections to the sink and to the dead letter store."""
        self._sink.close()
        self._store.close()


def _with_error_types(outcome: Outcome, dead_letters: Sequence[DeadLetter]) -> Outcome:
    """Add the number of dead letters by error type to an outcome, if this attempt claimed or staged the batch.

    :param outcome: result of the sink's writer, which did not see the dead letters
    :param dead_letters: the batch's dead letters
    """
    if outcome.receipt_existed or outcome.outcome not in _CLAIMED:
        return outcome
    return replace(outcome, dead_letters=dict(Counter(dead_letter.error.type.value for dead_letter in dead_letters)))
