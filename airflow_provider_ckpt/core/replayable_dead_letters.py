"""Select dead letters to replay or discard: only parked ones, so that none is replayed twice.

A dead letter that a replay sends or has sent is not selected again, no matter which user selects it (semantics, section
8). A dead letter whose range was read again is not selected either, since its record has been delivered or parked anew.
``replay_content.py`` decides that a replayed record does not overwrite a newer row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import (
    REPLAYABLE,
    DeadLetters,
    DeadLetterState,
    IndexEntry,
    RereadRange,
    newest_reread,
)
from airflow_provider_ckpt.core.ranges import Range


@dataclass(frozen=True, slots=True)
class Selection:
    """A user's criteria for dead letters to replay or discard; a field that is empty or None restricts nothing.

    :param types: error types
    :param batches: batches
    :param since: only dead letters of batches whose receipt was claimed at this time or later
    :param until: only dead letters of batches whose receipt was claimed before this time
    :param stop_at: maximum number of dead letters, oldest first
    """

    types: frozenset[str] = frozenset()
    batches: frozenset[BatchKey] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    stop_at: int | None = None

    def matches(self, entry: IndexEntry) -> bool:
        """Return whether an index entry meets all criteria; :attr:`stop_at`, which limits the number, is ignored."""
        return (
            (not self.types or entry.dead_letters.error_type in self.types)
            and (not self.batches or entry.dead_letters.key in self.batches)
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )


def find_replayed(
    entries: Iterable[IndexEntry], ranges: Collection[tuple[str, Range]], rereads: Collection[RereadRange]
) -> list[IndexEntry]:
    """Return the entries of dead letters whose records would be delivered twice if some ranges were read again.

    These are dead letters that a replay sends or has sent. A replay in which all dead letters failed again has
    delivered nothing and is left out. If only some failed again, the index does not show which, so all dead letters of
    that replay are returned.

    :param entries: the whole index
    :param ranges: pairs of a source partition and a range of it to read again
    :param rereads: ranges that were read again before; dead letters in them are obsolete and are left out
    """
    entries = list(entries)
    delivered: Counter[str] = Counter()
    for entry in entries:
        if entry.state is DeadLetterState.REPLAYED and entry.replay is not None:
            delivered[entry.replay] += entry.dead_letters.records
        delivered[entry.dead_letters.key.partition] -= entry.dead_letters.records
    return [
        entry
        for entry in entries
        if (
            entry.state is DeadLetterState.REPLAYING
            or (entry.state is DeadLetterState.REPLAYED and (entry.replay is None or delivered[entry.replay] > 0))
        )
        and any(entry.dead_letters.key.source == name and entry.range.overlaps(span) for name, span in ranges)
        and newest_reread(entry, rereads) is None
    ]


def replaying_within(entries: Iterable[IndexEntry], ranges: Collection[tuple[str, Range]]) -> list[IndexEntry]:
    """Return the entries of dead letters in some ranges of the source that a replay is still sending.

    :param entries: the index
    :param ranges: pairs of a source partition and a range of it
    """
    return [
        entry
        for entry in entries
        if entry.state is DeadLetterState.REPLAYING
        and any(entry.dead_letters.key.source == name and entry.range.overlaps(span) for name, span in ranges)
    ]


def select(entries: Iterable[IndexEntry], selection: Selection, rereads: Collection[RereadRange]) -> list[DeadLetters]:
    """Return the selected dead letters that may be replayed or discarded, oldest first.

    :param entries: the index
    :param selection: the user's criteria
    :param rereads: ranges that were read again; dead letters in them are obsolete and are left out
    """
    matching = (entry for entry in entries if entry.state in REPLAYABLE and selection.matches(entry))
    not_reread = [entry for entry in matching if newest_reread(entry, rereads) is None]
    ordered = (entry.dead_letters for entry in sorted(not_reread, key=lambda item: (item.range, item.dead_letters)))
    return list(take_first(ordered, selection.stop_at))


def take_first(dead_letters: Iterable[DeadLetters], number: int | None) -> Iterator[DeadLetters]:
    """Yield groups of dead letters until ``number`` dead letters are reached; the last group is shortened if needed.

    :param dead_letters: groups of consecutive dead letters
    :param number: maximum number of dead letters, not of groups; None for all
    """
    for item in dead_letters:
        if number is None:
            yield item
        elif number > 0:
            found = item.part(item.first, min(item.end, item.first + number))
            number -= found.records
            yield found


def select_numbers(dead_letters: DeadLetters, numbers: Iterable[int]) -> list[DeadLetters]:
    """Return those dead letters of a group that have the given numbers, in as few groups as possible.

    :param dead_letters: the group that contains them
    :param numbers: ascending numbers, each at least :attr:`DeadLetters.first` and less than :attr:`DeadLetters.end`
    """
    runs: list[DeadLetters] = []
    for number in numbers:
        if runs and runs[-1].end == number:
            runs[-1] = runs[-1].part(runs[-1].first, number + 1)
        else:
            runs.append(dead_letters.part(number, number + 1))
    return runs
