"""Define the content of a replay: the dead letters that it sends again, and their order (semantics, section 8).

A replay overwrites no row of the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.ranges import Range


def may_overwrite(key: BatchKey) -> bool:
    """Return whether a batch's records may replace rows of the target that have the same key: False for a replay.

    A dead letter that is replayed may be older than the row. If its key exists in the target, the record becomes a dead
    letter again.

    :param key: the batch
    """
    return not key.is_replay


@dataclass(frozen=True, slots=True)
class PositionedDeadLetters:
    """Consecutive dead letters of one batch, with their position in a replay.

    :param dead_letters: the dead letters
    :param start: position in the replay of the dead letter that is sent first; a replay numbers its dead letters from 0
        in the order in which they are sent
    """

    dead_letters: DeadLetters
    start: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The content of a side partition that replays dead letters; its positions number the dead letters from 0.

    :param dead_letters: groups of consecutive dead letters, in the order in which they are sent
    :param newest_first: whether the newest dead letter is sent first; each group is then sent in reverse, too
    :ivar ends: for each group, the position in the replay after its last dead letter
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
        """Create a replay from dead letters that are sorted by age.

        :param dead_letters: groups of consecutive dead letters, oldest first
        :param newest_first: whether the newest dead letter is sent first
        """
        return cls(tuple(reversed(dead_letters)) if newest_first else tuple(dead_letters), newest_first)

    @property
    def records(self) -> int:
        """Number of dead letters in the replay."""
        return self.ends[-1] if self.ends else 0

    def within(self, span: Range) -> Iterator[PositionedDeadLetters]:
        """Yield the dead letters of one batch of the replay, in the order in which they are sent.

        :param span: the batch's range of positions in the replay, which number its dead letters from 0
        """
        start = 0
        for dead_letters, end in zip(self.dead_letters, self.ends, strict=True):
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                first = dead_letters.end - (high - start) if self.newest_first else dead_letters.first + low - start
                yield PositionedDeadLetters(dead_letters.part(first, first + high - low), low)
            start = end

    def to_json(self) -> dict[str, Any]:
        """Return the replay as a JSON-ready dict, which the ledger stores; :meth:`from_json` is the inverse."""
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

    With this data the ledger restores their side partitions, so that no dead letter is delivered twice.

    :param replays: the replays, by the id of their side partition
    :param types: for each attempt whose dead letters are replayed, the number of its dead letters by error type
    """

    replays: Mapping[str, Replay] = field(default_factory=dict)
    types: Mapping[AttemptKey, Mapping[str, int]] = field(default_factory=dict)
