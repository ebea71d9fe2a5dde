"""Replays of dead letters: the content of the side partitions that send them again (semantics, section 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.dead_letter_index import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.ranges import Range


@dataclass(frozen=True, slots=True)
class PositionedDeadLetters:
    """A run of dead letters and its position in a replay.

    :param dead_letters: the run
    :param start: position of its first dead letter in the replay
    """

    dead_letters: DeadLetters
    start: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The content of a side partition that replays dead letters; its positions number the dead letters from 0.

    :param dead_letters: runs of dead letters in the order of the replay
    :param newest_first: whether the newest comes first, so that of several records with one key it is sent first
    """

    dead_letters: tuple[DeadLetters, ...]
    newest_first: bool = False
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total, ends = 0, []
        for dead_letters in self.dead_letters:
            total += dead_letters.records
            ends.append(total)
        object.__setattr__(self, "ends", tuple(ends))

    @classmethod
    def of(cls, dead_letters: Sequence[DeadLetters], *, newest_first: bool) -> Replay:
        """Create a replay.

        :param dead_letters: runs of dead letters, oldest first
        :param newest_first: whether to replay them in the reverse order
        """
        return cls(tuple(reversed(dead_letters)) if newest_first else tuple(dead_letters), newest_first)

    @property
    def records(self) -> int:
        """Number of dead letters."""
        return self.ends[-1] if self.ends else 0

    def within(self, span: Range) -> Iterator[PositionedDeadLetters]:
        """Yield the dead letters in a range of the replay's positions, in order."""
        start = 0
        for dead_letters, end in zip(self.dead_letters, self.ends, strict=True):
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                first = dead_letters.end - (high - start) if self.newest_first else dead_letters.first + low - start
                yield PositionedDeadLetters(dead_letters.part(first, first + high - low), low)
            start = end

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "dead_letters": [dead_letters.to_json() for dead_letters in self.dead_letters],
            "newest_first": self.newest_first,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replay:
        """Restore a replay from the output of :meth:`to_json`."""
        return cls(tuple(DeadLetters.from_json(item) for item in data["dead_letters"]), data["newest_first"])


@dataclass(frozen=True, slots=True)
class LostReplays:
    """Replays that have receipts in the sink but are missing in the ledger, which was lost or restored from a backup.

    :param replays: by side partition
    :param types: number of dead letters by error type, for each attempt whose dead letters are replayed
    """

    replays: Mapping[str, Replay] = field(default_factory=dict)
    types: Mapping[AttemptKey, Mapping[str, int]] = field(default_factory=dict)
