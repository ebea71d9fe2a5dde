"""Store dead letters: retry a store that refuses them, wherever it is, and wrap a sink whose store is elsewhere.

A store outside the sink is in Kafka, PostgreSQL or files. The dead letters of a batch are then written durably before
the sink claims its receipt; the sink only gets their number. They count only if the receipt names their attempt, so
what a failed attempt left behind is never read.
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
    """Refusal of dead letters by a store that works otherwise; a retry may succeed."""


def store_dead_letters(
    store: Callable[[], T],
    dead_letters: Sequence[DeadLetter],
    task: BatchTask,
    queue: DeadLetterQueue,
    refusal: type[CkptError] = DeadLettersRefusedError,
) -> T:
    """Store dead letters of a batch; if they are refused, retry ``max_dlq_retries`` times, one second apart.

    :param store: function that stores them, or does all in which they are stored
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
    """Destination for the dead letters of one pipeline and ledger. Errors are :class:`CkptError` of any type."""

    def check(self) -> None:
        """Raise an error if the destination cannot be reached or does not fit; create what is missing."""

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        """Write dead letters of one attempt durably; writing the same ones again is harmless.

        The caller retries (see :func:`store_dead_letters`).

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far; a dead letter's number is its index
        :param first: number of the first one that is not stored yet
        """

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """See :meth:`Sink.letters`."""

    def close(self) -> None:
        """Close connections."""


class WriterWithDeadLetterStore:
    """Sink writer whose dead letters go into a dead letter store; see :class:`Writer`.

    :param queue: the pipeline's dead letter settings
    """

    def __init__(self, writer: Writer, store: DeadLetterStore, queue: DeadLetterQueue) -> None:
        self._writer = writer
        self._store = store
        self._queue = queue
        self._stored: tuple[BatchTask | None, int] = (None, 0)

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Store the batch's dead letters, then deliver the rest.

        If the sink refuses rows, the next call stores the dead letters that were added since.

        :raises DeadLetterQueueError: if a dead letter cannot be stored; nothing of the batch is delivered or claimed
            then
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
        """Close connections."""
        self._writer.close()
        self._store.close()


class SinkWithDeadLetterStore:
    """Sink whose dead letters are in a dead letter store; see :class:`Sink`."""

    def __init__(self, sink: Sink, store: DeadLetterStore) -> None:
        self._sink = sink
        self._store = store
        self.exactly_once = sink.exactly_once

    @property
    def location(self) -> str:
        """See :attr:`Sink.location`."""
        return self._sink.location

    def check(self, *, create: bool = True) -> None:
        """See :meth:`Sink.check`; the dead letter store is checked, too."""
        self._sink.check(create=create)
        if create:
            self._store.check()

    def outputs(self) -> Sequence[Output]:
        """See :class:`NamesOutputs`; includes the outputs of the dead letter store."""
        named = [part.outputs() for part in (self._sink, self._store) if isinstance(part, NamesOutputs)]
        return [output for outputs in named for output in outputs]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See :meth:`Sink.check_columns`."""
        self._sink.check_columns(columns)

    def claims(self) -> Claims:
        """See :meth:`Sink.claims`."""
        return self._sink.claims()

    def fence(self, epoch: int) -> None:
        """See :meth:`Sink.fence`."""
        self._sink.fence(epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """See :meth:`Sink.receipts`."""
        return self._sink.receipts(known)

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """See :meth:`Sink.batches_without_receipt`."""
        return self._sink.batches_without_receipt(keys)

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """See :meth:`Sink.letters`."""
        return self._store.dead_letters(sources)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """See :meth:`Sink.store_replay`."""
        self._sink.store_replay(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """See :meth:`Sink.replays`."""
        return self._sink.replays(partitions)

    def store_file_list(self, files: FileList) -> None:
        """See :meth:`Sink.store_file_list`."""
        self._sink.store_file_list(files)

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """See :meth:`Sink.stored_file_lists`."""
        return self._sink.stored_file_lists(first)

    def target_rows(self, *, exact: bool = False) -> int | None:
        """See :meth:`Sink.target_rows`."""
        return self._sink.target_rows(exact=exact)

    def damaged_files(self) -> Iterator[str]:
        """See :class:`FileBasedSink`; yields nothing if the target is not made of files."""
        return self._sink.damaged_files() if isinstance(self._sink, FileBasedSink) else iter(())

    def store_witness(self, epoch: int) -> None:
        """See :class:`SinkWithWitness`; does nothing if the target has no witness."""
        if isinstance(self._sink, SinkWithWitness):
            self._sink.store_witness(epoch)

    def close(self) -> None:
        """Close connections."""
        self._sink.close()
        self._store.close()


def _with_error_types(outcome: Outcome, dead_letters: Sequence[DeadLetter]) -> Outcome:
    """Return the outcome of an attempt that claimed, with the number of its dead letters by error type."""
    if outcome.receipt_existed or outcome.outcome not in _CLAIMED:
        return outcome
    return replace(outcome, dead_letters=dict(Counter(dead_letter.error.type.value for dead_letter in dead_letters)))
