"""Define the ledger's index of dead letters: which dead letters are valid, their states, and what changes a state.

Only the dead letters of the attempt that the batch's receipt names are valid (semantics, section 8). Their content is
in the dead letter store. An entry of the index is a group of consecutive dead letters that have the same batch, error
type and state. The sink keeps a batch's dead letters in an order that never changes, so a first number and a count
identify a group. The size of the index thus depends on the number of batches and of users' decisions, not on the number
of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt

UNKNOWN_TYPE = "unknown"
"""Error type under which the index lists dead letters that are known only from a receipt.

A receipt counts dead letters without naming their error types.
"""


class DeadLetterState(StrEnum):
    """State of a dead letter.

    - ``parked``: stored, not sent again yet
    - ``replaying``: a replay that is not complete sends it again
    - ``replayed``: a replay has sent it again
    - ``parked_again``: written by a replay, because the record failed again
    - ``discarded``: given up by a user
    """

    PARKED = "parked"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    PARKED_AGAIN = "parked_again"
    DISCARDED = "discarded"


UNDELIVERED = frozenset({DeadLetterState.PARKED, DeadLetterState.PARKED_AGAIN, DeadLetterState.REPLAYING})
"""States of dead letters that are neither replayed nor discarded yet."""

REPLAYABLE = frozenset({DeadLetterState.PARKED, DeadLetterState.PARKED_AGAIN})
"""States of parked dead letters, which may be replayed or discarded."""


class DeadLetterEvent(Enum):
    """An event that may change the state of dead letters.

    - ``SELECTED``: a user selects them for a replay, or discards them
    - ``REPLAY_RECEIPT``: the receipt of a replay's batch that contains them becomes known to the ledger
    - ``AT_MOST_ONCE_ATTEMPT``: a replay's batch that contains them is sent at most once, and its attempt begins
    - ``REPLAY_SKIPPED``: a replay's batch that contains them is skipped
    - ``REPLAY_LOST``: the sink, restored from a backup for example, has lost the replay that sent them
    """

    SELECTED = "selected"
    REPLAY_RECEIPT = "replay_receipt"
    AT_MOST_ONCE_ATTEMPT = "at_most_once_attempt"
    REPLAY_SKIPPED = "replay_skipped"
    REPLAY_LOST = "replay_lost"


CHANGES_FROM: Mapping[DeadLetterEvent, frozenset[DeadLetterState]] = {
    DeadLetterEvent.SELECTED: REPLAYABLE,
    DeadLetterEvent.REPLAY_RECEIPT: REPLAYABLE | {DeadLetterState.REPLAYING},
    DeadLetterEvent.AT_MOST_ONCE_ATTEMPT: frozenset({DeadLetterState.REPLAYING}),
    DeadLetterEvent.REPLAY_SKIPPED: frozenset({DeadLetterState.REPLAYING}),
    DeadLetterEvent.REPLAY_LOST: frozenset({DeadLetterState.REPLAYED}),
}
"""For each event, the states of the dead letters that it changes; dead letters in another state stay as they are."""


class AttemptKey(NamedTuple):
    """Key of an attempt that wrote dead letters.

    Only the dead letters of the attempt that the batch's receipt names are valid; those of failed attempts are ignored.

    :param key: the batch
    :param attempt: number of the attempt, from 1
    :param epoch: epoch of the attempt
    """

    key: BatchKey
    attempt: int
    epoch: int


def attempt_of(receipt: Receipt) -> AttemptKey:
    """Return the key of the attempt that wrote a receipt.

    Of the dead letters that a batch's attempts have written, only those of this attempt are valid.
    """
    return AttemptKey(receipt.key, receipt.attempt, receipt.epoch)


@dataclass(frozen=True, slots=True, order=True)
class DeadLetters:
    """A group of consecutive dead letters of one batch and one error type, numbered in the sink's order.

    :param key: the batch
    :param error_type: the error type
    :param first: number of the first dead letter of the group, counted from 0 among the batch's dead letters of this
        error type
    :param records: number of dead letters
    :param attempt: number of the attempt that wrote them
    :param epoch: the epoch of that attempt
    """

    key: BatchKey
    error_type: str
    first: int
    records: int
    attempt: int
    epoch: int

    @property
    def source(self) -> AttemptKey:
        """Key of the attempt that wrote these dead letters."""
        return AttemptKey(self.key, self.attempt, self.epoch)

    @property
    def end(self) -> int:
        """Number of the last of these consecutive dead letters, plus one: the exclusive end of their numbers."""
        return self.first + self.records

    def part(self, first: int, end: int) -> DeadLetters:
        """Return the dead letters of this group with the numbers from ``first`` up to, but not including, ``end``."""
        return replace(self, first=first, records=end - first)

    def to_json(self) -> list[Any]:
        """Return the group of dead letters as a JSON-ready list; :meth:`from_json` is the inverse."""
        return [self.key.to_json(), self.error_type, self.first, self.records, self.attempt, self.epoch]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> DeadLetters:
        """Restore a group of dead letters from the output of :meth:`to_json`."""
        return cls(BatchKey.from_json(data[0]), *data[1:])


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of the ledger's index of dead letters: a group of dead letters that have the same state.

    :param dead_letters: the dead letters
    :param range: range of the source partition that contains their records; it may contain others too
    :param state: the state of the dead letters
    :param at: when the receipt of their batch was claimed, UTC
    :param replays: number of earlier replays in which the same records failed again
    :param replay: id of the side partition that replays or has replayed the dead letters; None if there is none
    """

    dead_letters: DeadLetters
    range: Range
    state: DeadLetterState
    at: datetime
    replays: int = 0
    replay: str | None = None

    @property
    def parked_state(self) -> DeadLetterState:
        """State of these dead letters while no replay sends them.

        The state is ``parked_again`` if a replay wrote these dead letters, because their records failed again;
        otherwise ``parked``.
        """
        return DeadLetterState.PARKED_AGAIN if self.dead_letters.key.is_replay else DeadLetterState.PARKED


@dataclass(frozen=True, slots=True)
class RereadRange:
    """A range of a source partition that a rewind, a range replay or a recovery read again.

    Dead letters of older generations in this range are obsolete, because their records were processed again.

    :param source: the id of the source partition
    :param generation: the generation that read the range again: after a rewind, that of the source partition; for a
        range replay or a recovery, that of its side partition, which gets the next number of the pipeline
    :param start: first position
    :param end: first position after the range; None if it is unbounded
    """

    source: str
    generation: int
    start: int
    end: int | None

    def covers(self, entry: IndexEntry) -> bool:
        """Return whether this range may contain records of an index entry, so that the entry is obsolete.

        This is so if the entry's dead letters come from the same source partition and an older generation, and the
        entry's range overlaps this one.
        """
        key, span = entry.dead_letters.key, entry.range
        beyond = self.end is not None and span.start >= self.end
        return key.source == self.source and key.generation < self.generation and span.end > self.start and not beyond


def newest_reread(entry: IndexEntry, rereads: Iterable[RereadRange]) -> int | None:
    """Return the newest generation that read the records of an index entry again; None if no generation did.

    :param entry: the index entry
    :param rereads: the ranges of the source that were read again
    """
    return max((found.generation for found in rereads if found.covers(entry)), default=None)


def update_entries(
    entries: Iterable[IndexEntry], wanted: Iterable[DeadLetters], event: DeadLetterEvent, **changes: Any
) -> tuple[list[DeadLetters], list[tuple[IndexEntry, list[IndexEntry]]]]:
    """Compute how index entries change if some dead letters get new field values; the entries are not modified.

    An entry of which only some dead letters change is split into several entries. Dead letters in a state that the
    event does not change (:data:`CHANGES_FROM`) are left as they are.

    :param entries: the index
    :param wanted: the dead letters to change
    :param event: the event that changes them
    :param changes: new values of :class:`IndexEntry` fields, such as ``state``
    :return: the dead letters that change, and pairs of an old entry and the entries that replace it
    """
    runs_by_key: dict[tuple[AttemptKey, str], list[DeadLetters]] = {}
    for dead_letters in wanted:
        runs_by_key.setdefault((dead_letters.source, dead_letters.error_type), []).append(dead_letters)
    moved: list[DeadLetters] = []
    changed: list[tuple[IndexEntry, list[IndexEntry]]] = []
    for entry in sorted(entries, key=lambda item: item.dead_letters):
        own = entry.dead_letters
        at, pieces = own.first, []
        for dead_letters in sorted(runs_by_key.get((own.source, own.error_type), ())):
            first, end = max(dead_letters.first, at), min(dead_letters.end, own.end)
            if entry.state not in CHANGES_FROM[event] or first >= end:
                continue
            if first > at:
                pieces.append(replace(entry, dead_letters=own.part(at, first)))
            pieces.append(replace(entry, dead_letters=own.part(first, end), **changes))
            moved.append(own.part(first, end))
            at = end
        if pieces:
            rest = [replace(entry, dead_letters=own.part(at, own.end))] if at < own.end else []
            changed.append((entry, [*pieces, *rest]))
    return moved, changed
