"""Dead letters as the ledger's index sees them: runs of one batch's letters of one error type, and what became of each.

Semantics, section 8. A sink keeps a batch's letters in an order that never changes, so a run of them is two numbers,
and the index grows with batches and decisions, not with records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.ranges import Range

UNTYPED = "unknown"
"""Error type in the index where only the receipt is known, and not the report that names types."""


class LetterState(StrEnum):
    """What became of dead letters."""

    PARKED = "parked"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    PARKED_AGAIN = "parked_again"
    DISCARDED = "discarded"


OPEN = frozenset({LetterState.PARKED, LetterState.PARKED_AGAIN})
"""States in which letters may be replayed or discarded."""

UNDELIVERED = OPEN | {LetterState.REPLAYING}
"""States of letters that somebody still has to do something about."""


class AttemptKey(NamedTuple):
    """The attempt whose dead letters count: the one that the batch's receipt names."""

    key: BatchKey
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True, order=True)
class Letters:
    """A run of a batch's dead letters of one error type, by their number in the sink's order.

    :param first: number of the first, from 0, among those of this error type
    :param records: how many
    """

    key: BatchKey
    error_type: str
    first: int
    records: int
    attempt: int
    epoch: int

    @property
    def source(self) -> AttemptKey:
        """The attempt that left them in the sink."""
        return AttemptKey(self.key, self.attempt, self.epoch)

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + self.records

    def part(self, first: int, end: int) -> Letters:
        """Those of them with these numbers."""
        return replace(self, first=first, records=end - first)

    def to_json(self) -> list[Any]:
        """A JSON-ready list; :meth:`from_json` is its inverse."""
        return [self.key.to_json(), self.error_type, self.first, self.records, self.attempt, self.epoch]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Letters:
        """What :meth:`to_json` wrote."""
        return cls(BatchKey.from_json(data[0]), *data[1:])


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the index.

    :param range: where the records lie in the source partition, at most
    :param at: when the receipt was claimed
    :param replays: how often they were replayed in vain before
    :param replay: the side partition that replays them, or has
    """

    letters: Letters
    range: Range
    state: LetterState
    at: datetime
    replays: int = 0
    replay: str | None = None

    @property
    def at_rest(self) -> LetterState:
        """The state in which they wait for a person."""
        return LetterState.PARKED_AGAIN if self.letters.key.letters else LetterState.PARKED


@dataclass(frozen=True, slots=True)
class Reread:
    """A stretch of a source partition that a rewind or a replayed range had read once more.

    :param generation: in which; letters of older ones are subsumed, for their records got another verdict there
    :param start: first position
    :param end: first position after, or None: all that follows
    """

    source: str
    generation: int
    start: int
    end: int | None

    def covers(self, entry: Entry) -> bool:
        """Whether records of these letters may have been read again."""
        key, span = entry.letters.key, entry.range
        beyond = self.end is not None and span.start >= self.end
        return key.source == self.source and key.generation < self.generation and span.end > self.start and not beyond


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters a person means; what is left out does not narrow.

    :param since: dead-lettered at or after
    :param until: dead-lettered before
    :param stop_at: the first so many of them
    """

    types: frozenset[str] = frozenset()
    batches: frozenset[BatchKey] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    stop_at: int | None = None

    def names(self, entry: Entry) -> bool:
        """Whether the entry is meant, before :attr:`stop_at` is looked at."""
        return (
            (not self.types or entry.letters.error_type in self.types)
            and (not self.batches or entry.letters.key in self.batches)
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )


def read_again(entry: Entry, rereads: Iterable[Reread]) -> int | None:
    """The newest generation in which the records were read once more, so that their fate was decided there."""
    return max((found.generation for found in rereads if found.covers(entry)), default=None)


def replayed_within(
    entries: Iterable[Entry], spans: Collection[tuple[str, Range]], rereads: Collection[Reread]
) -> list[Entry]:
    """Letters of which a replay has delivered records, or is about to, that these stretches would read once more.

    A replay that has parked as many letters again as it sent has delivered none. Of one that has parked some, the index
    does not say which, so all count.

    :param entries: the whole index
    :param spans: source partitions, each with a stretch
    """
    entries = list(entries)
    delivered: Counter[str] = Counter()
    for entry in entries:
        if entry.state is LetterState.REPLAYED and entry.replay is not None:
            delivered[entry.replay] += entry.letters.records
        delivered[entry.letters.key.partition] -= entry.letters.records
    return [
        entry
        for entry in entries
        if (
            entry.state is LetterState.REPLAYING
            or (entry.state is LetterState.REPLAYED and (entry.replay is None or delivered[entry.replay] > 0))
        )
        and any(entry.letters.key.source == name and entry.range.overlaps(span) for name, span in spans)
        and read_again(entry, rereads) is None
    ]


def replaying_within(entries: Iterable[Entry], spans: Collection[tuple[str, Range]]) -> list[Entry]:
    """Letters whose replay is not done, and whose records these stretches have read once more.

    :param spans: source partitions, each with a stretch
    """
    return [
        entry
        for entry in entries
        if entry.state is LetterState.REPLAYING
        and any(entry.letters.key.source == name and entry.range.overlaps(span) for name, span in spans)
    ]


def choose(entries: Iterable[Entry], selection: Selection, rereads: Collection[Reread]) -> list[Letters]:
    """The letters of a selection that may be replayed or discarded, oldest first."""
    meant = (entry for entry in entries if entry.state in OPEN and selection.names(entry))
    whole = [entry for entry in meant if read_again(entry, rereads) is None]
    ordered = (entry.letters for entry in sorted(whole, key=lambda item: (item.range, item.letters)))
    return list(first_of(ordered, selection.stop_at))


def first_of(letters: Iterable[Letters], number: int | None) -> Iterator[Letters]:
    """The first so many letters; all of them for None."""
    for item in letters:
        if number is None:
            yield item
        elif number > 0:
            found = item.part(item.first, min(item.end, item.first + number))
            number -= found.records
            yield found


def runs_of(letters: Letters, numbers: Iterable[int]) -> list[Letters]:
    """Those of the letters that are numbered so, as the fewest runs.

    :param numbers: growing, each one of :attr:`Letters.first` to :attr:`Letters.end`
    """
    runs: list[Letters] = []
    for number in numbers:
        if runs and runs[-1].end == number:
            runs[-1] = runs[-1].part(runs[-1].first, number + 1)
        else:
            runs.append(letters.part(number, number + 1))
    return runs


def move(
    entries: Iterable[Entry], wanted: Iterable[Letters], states: Collection[LetterState], **changes: Any
) -> tuple[list[Letters], list[tuple[Entry, list[Entry]]]]:
    """Give wanted letters another state, as far as they are in one of these now.

    :param changes: fields of the entries that are to be others
    :returns: the letters that moved, and each entry that changes with what takes its place
    """
    places: dict[tuple[AttemptKey, str], list[Letters]] = {}
    for letters in wanted:
        places.setdefault((letters.source, letters.error_type), []).append(letters)
    moved: list[Letters] = []
    changed: list[tuple[Entry, list[Entry]]] = []
    for entry in sorted(entries, key=lambda item: item.letters):
        own = entry.letters
        at, pieces = own.first, []
        for letters in sorted(places.get((own.source, own.error_type), ())):
            first, end = max(letters.first, at), min(letters.end, own.end)
            if entry.state not in states or first >= end:
                continue
            if first > at:
                pieces.append(replace(entry, letters=own.part(at, first)))
            pieces.append(replace(entry, letters=own.part(first, end), **changes))
            moved.append(own.part(first, end))
            at = end
        if pieces:
            rest = [replace(entry, letters=own.part(at, own.end))] if at < own.end else []
            changed.append((entry, [*pieces, *rest]))
    return moved, changed


@dataclass(frozen=True, slots=True)
class Placed:
    """Letters with their place in a replay.

    :param start: position of the first
    """

    letters: Letters
    start: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a side partition of dead letters reads: its positions number these letters from 0.

    :param newest_first: begin with the newest, so that of several records of one key the newest comes first
    """

    letters: tuple[Letters, ...]
    newest_first: bool = False
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total, ends = 0, []
        for letters in self.letters:
            total += letters.records
            ends.append(total)
        object.__setattr__(self, "ends", tuple(ends))

    @classmethod
    def of(cls, letters: Sequence[Letters], *, newest_first: bool) -> Replay:
        """A replay of letters that are given oldest first."""
        return cls(tuple(reversed(letters)) if newest_first else tuple(letters), newest_first)

    @property
    def records(self) -> int:
        """How many there are."""
        return self.ends[-1] if self.ends else 0

    def within(self, span: Range) -> Iterator[Placed]:
        """The letters at some positions, in order."""
        start = 0
        for letters, end in zip(self.letters, self.ends, strict=True):
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                first = letters.end - (high - start) if self.newest_first else letters.first + low - start
                yield Placed(letters.part(first, first + high - low), low)
            start = end

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"letters": [letters.to_json() for letters in self.letters], "newest_first": self.newest_first}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replay:
        """The replay that :meth:`to_json` wrote."""
        return cls(tuple(Letters.from_json(item) for item in data["letters"]), data["newest_first"])


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Replays that a sink has receipts of and a ledger knows nothing of: it was lost, or restored from a backup.

    :param replays: by side partition
    :param types: of each attempt whose letters they send, all its letters by error type
    """

    replays: Mapping[str, Replay] = field(default_factory=dict)
    types: Mapping[AttemptKey, Mapping[str, int]] = field(default_factory=dict)
