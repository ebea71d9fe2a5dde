"""What travels between the process that holds the lease and Spark: a wave of lanes one way, outcomes the other.

Plain values with a JSON form, so that they cross a file, a pickle or a wire unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchKey, Instruction, Receipt
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One batch as a lane gets it.

    :param attempt: the number of this attempt, from 1
    :param instruction: which verdict to claim
    :param detail: what the source's reader needs to find the range (a file's path and byte span, say)
    :param error: why the batch is given up, when the instruction is not ``deliver``
    :param finished: failures of the batch that lanes reported before; an attempt that never ran is none
    :param last: whether its attempts are used up if this one fails, too
    """

    key: BatchKey
    range: Range
    attempt: int
    instruction: Instruction = Instruction.DELIVER
    bound: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: ErrorInfo | None = None
    finished: int = 0
    last: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "key": self.key.to_json(),
            "range": [self.range.start, self.range.end],
            "attempt": self.attempt,
            "instruction": self.instruction.value,
            "bound": self.bound,
            "detail": dict(self.detail),
            "error": self.error.to_json() if self.error else None,
            "finished": self.finished,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchTask:
        """The task that :meth:`to_json` wrote."""
        return cls(
            BatchKey.from_json(data["key"]),
            Range(*data["range"]),
            data["attempt"],
            Instruction(data["instruction"]),
            data["bound"],
            data["detail"],
            ErrorInfo.from_json(data["error"]) if data["error"] else None,
            data["finished"],
            data["last"],
        )


@dataclass(frozen=True, slots=True)
class Wave:
    """One Spark job: lanes of batches, each lane worked through in order by one task.

    :param number: counts the run's waves, from 1
    :param seconds: a lane starts no further batch once this much time has passed since it began
    """

    number: int
    lanes: Sequence[Sequence[BatchTask]]
    seconds: float

    @property
    def tasks(self) -> list[BatchTask]:
        """All batches of all lanes."""
        return [task for lane in self.lanes for task in lane]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "number": self.number,
            "seconds": self.seconds,
            "lanes": [[task.to_json() for task in lane] for lane in self.lanes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Wave:
        """The wave that :meth:`to_json` wrote."""
        lanes = [[BatchTask.from_json(task) for task in lane] for lane in data["lanes"]]
        return cls(data["number"], lanes, data["seconds"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a lane, or a table sink's commit, reports of one attempt.

    :param receipt: the sink's receipt, claimed now or found; present when the outcome is a verdict
    :param found: whether the receipt was there before this attempt
    :param error: why it failed, when it failed
    :param letters: dead letters by error type, as counts
    :param staged: what a two-phase sink needs for its commit, when the outcome is ``staged``
    :param seconds: wall time that the lane spent on the batch
    """

    key: BatchKey
    attempt: int
    outcome: AttemptOutcome
    receipt: Receipt | None = None
    found: bool = False
    error: ErrorInfo | None = None
    letters: Mapping[str, int] = field(default_factory=dict)
    staged: Mapping[str, Any] | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "key": self.key.to_json(),
            "attempt": self.attempt,
            "outcome": self.outcome.value,
            "receipt": self.receipt.to_json() if self.receipt else None,
            "found": self.found,
            "error": self.error.to_json() if self.error else None,
            "letters": dict(self.letters),
            "staged": self.staged,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome that :meth:`to_json` wrote."""
        return cls(
            BatchKey.from_json(data["key"]),
            data["attempt"],
            AttemptOutcome(data["outcome"]),
            Receipt.from_json(data["receipt"]) if data["receipt"] else None,
            data["found"],
            ErrorInfo.from_json(data["error"]) if data["error"] else None,
            data["letters"],
            data["staged"],
            data["seconds"],
        )


def pack(tasks: Iterable[BatchTask], lanes: int, *, pinned: bool) -> list[list[BatchTask]]:
    """Spread batches over lanes, each lane in order.

    :param lanes: how many at most; none is empty
    :param pinned: keep a partition's batches in one lane, in seq order; else deal them out in turn
    """
    ordered = sorted(tasks, key=lambda task: (task.key.partition, task.key.generation, task.key.seq))
    packed: list[list[BatchTask]] = [[] for _ in range(max(min(lanes, len(ordered)), 1))]
    if pinned:
        groups: dict[str, list[BatchTask]] = {}
        for task in ordered:
            groups.setdefault(task.key.partition, []).append(task)
        for group in sorted(groups.values(), key=len, reverse=True):
            min(packed, key=len).extend(group)
    else:
        for index, task in enumerate(ordered):
            packed[index % len(packed)].append(task)
    return [lane for lane in packed if lane]


def one_by_one(due: Sequence[Batch], *, pinned: bool) -> list[Batch]:
    """Of a pinned pipeline each partition's first batch; of any other all of them, which are one by one anyway."""
    if not pinned:
        return list(due)
    first: dict[str, Batch] = {}
    for batch in due:
        first.setdefault(batch.key.partition, batch)
    return list(first.values())


def unblocked(due: Sequence[Batch], candidates: Sequence[Batch]) -> list[Batch]:
    """The due batches that no earlier batch of their partition keeps waiting (semantics, section 6)."""
    ready = {batch.key for batch in due}
    waiting: dict[str, int] = {}
    for batch in candidates:
        if batch.key not in ready:
            waiting.setdefault(batch.key.partition, batch.key.seq)
    return [batch for batch in due if batch.key.seq < waiting.get(batch.key.partition, batch.key.seq + 1)]
