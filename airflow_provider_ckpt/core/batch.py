"""A micro-batch and what is known of it: its state, its attempts, and the receipt that ends it.

Semantics, section 1. These are values; the transitions between them are in ``partition.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range


class BatchState(StrEnum):
    """Where a batch stands."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    HELD = "held"
    DELIVERED = "delivered"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    SENT = "sent"
    SUPERSEDED = "superseded"


BLOCKING = frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD})
"""States that the checkpoint may not pass."""

RESOLVED = frozenset({BatchState.DELIVERED, BatchState.REJECTED, BatchState.SKIPPED, BatchState.SENT})
"""States that let the checkpoint pass."""


class Verdict(StrEnum):
    """What a receipt says of its batch."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"


VERDICT_STATE: Mapping[Verdict, BatchState] = {
    Verdict.DELIVERED: BatchState.DELIVERED,
    Verdict.REJECTED: BatchState.REJECTED,
    Verdict.VOID: BatchState.SKIPPED,
}


class Instruction(StrEnum):
    """What a lane is told to do with a batch; each is carried out by claiming the matching verdict in the sink."""

    DELIVER = "deliver"
    REJECT = "reject"
    VOID = "void"

    @property
    def verdict(self) -> Verdict:
        """The one that is claimed."""
        return _VERDICTS[self]


_VERDICTS = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}


class AttemptOutcome(StrEnum):
    """How one attempt ended, as far as anyone knows."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"
    FAILED = "failed"
    NOT_ATTEMPTED = "not_attempted"
    STAGED = "staged"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    FENCED = "fenced"


_SIDE = re.compile(r"(?:recovery|replay|dlq):(?P<generation>[0-9]+):(?P<source>.+)", re.DOTALL)


def side_generation(partition: str) -> int:
    """The generation in a side partition's name; 0 for a source partition."""
    found = _SIDE.match(partition)
    return int(found["generation"]) if found else 0


@dataclass(frozen=True, slots=True, order=True)
class BatchKey:
    """Names a batch inside its pipeline.

    :param generation: grows with every rewind, from 1
    :param partition: the source partition's id
    :param seq: grows by one per partition and generation, from 0; never reused
    """

    generation: int
    partition: str
    seq: int

    @property
    def side(self) -> bool:
        """Whether the batch belongs to a side partition, which reads a stretch of a source partition once more."""
        return _SIDE.match(self.partition) is not None

    @property
    def letters(self) -> bool:
        """Whether the batch replays dead letters: its positions number those, and not the source's records."""
        return self.side and self.partition.startswith("dlq:")

    @property
    def source(self) -> str:
        """The source partition that the batch's records come from."""
        found = _SIDE.match(self.partition)
        return self.partition if found is None else found["source"]

    def __str__(self) -> str:
        return f"{self.partition}#{self.seq}" + (f"@{self.generation}" if self.generation > 1 else "")

    @classmethod
    def parse(cls, text: str, *, generation: int | None = None) -> BatchKey:
        """The key that a person wrote as ``partition#seq`` or ``partition#seq@generation``.

        :param generation: where the text names none (1 by default)
        :raises ValueError: if it is neither
        """
        found = re.fullmatch(r"(?P<partition>.+)#(?P<seq>[0-9]+)(?:@(?P<generation>[0-9]+))?", text, re.DOTALL)
        if found is None:
            raise ValueError(f"{text!r} is no batch; write partition#seq, as `airflow ckpt status` shows it")
        return cls(int(found["generation"] or generation or 1), found["partition"], int(found["seq"]))

    def to_json(self) -> list[Any]:
        """A JSON-ready list; :meth:`from_json` is its inverse."""
        return [self.generation, self.partition, self.seq]

    @classmethod
    def from_json(cls, data: list[Any]) -> BatchKey:
        """The key that :meth:`to_json` wrote."""
        return cls(int(data[0]), str(data[1]), int(data[2]))


@dataclass(frozen=True, slots=True)
class Counts:
    """Records of one batch by their fate; ``SumIdentity`` is read = delivered + filtered + dead_lettered."""

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0

    @property
    def balanced(self) -> bool:
        """Whether ``SumIdentity`` holds, and no count is negative."""
        fates = (self.delivered, self.filtered, self.dead_lettered)
        return min(fates) >= 0 and self.read == sum(fates)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.read + other.read,
            self.delivered + other.delivered,
            self.filtered + other.filtered,
            self.dead_lettered + other.dead_lettered,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.read - other.read,
            self.delivered - other.delivered,
            self.filtered - other.filtered,
            self.dead_lettered - other.dead_lettered,
        )

    def to_json(self) -> dict[str, int]:
        """A JSON-ready dict in a fixed order."""
        return {
            "read": self.read,
            "delivered": self.delivered,
            "filtered": self.filtered,
            "dead_lettered": self.dead_lettered,
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sink's word that a batch has its verdict; claimed in the transaction that has the effect.

    :param bound: the source's closed bound when the batch was planned, as a position, where the source has one
    :param at: when it was claimed, UTC
    :param positions: those of the records that were read, as the sink keeps them for ``recover``; the ledger does not
    """

    key: BatchKey
    range: Range
    verdict: Verdict
    epoch: int
    attempt: int
    counts: Counts
    at: datetime
    bound: int | None = None
    positions: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "key": self.key.to_json(),
            "range": [self.range.start, self.range.end],
            "verdict": self.verdict.value,
            "epoch": self.epoch,
            "attempt": self.attempt,
            "counts": self.counts.to_json(),
            "at": self.at.isoformat(),
            "bound": self.bound,
            **({} if self.positions is None else {"positions": self.positions}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Receipt:
        """The receipt that :meth:`to_json` wrote."""
        return cls(
            BatchKey.from_json(data["key"]),
            Range(*data["range"]),
            Verdict(data["verdict"]),
            data["epoch"],
            data["attempt"],
            Counts(**data["counts"]),
            datetime.fromisoformat(data["at"]),
            data.get("bound"),
            data.get("positions"),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch.

    :param records: how many records planning counted or estimated, if it did
    :param instruction: what the next attempt is told to do
    :param attempts: attempts opened so far; also the number of the newest one
    :param failures: failures that lanes reported, in this round
    :param finished: failures that lanes reported, in all rounds (the retry delay's ``n``)
    :param round: 1 is the first submission; grows when a round's attempts are used up
    :param deaths: how often the executor died while the batch ran alone
    :param alone: whether the next attempt must run alone in its wave
    :param not_before: earliest begin of the next attempt, UTC
    :param epoch: the epoch of the open attempt, while in flight
    :param cancelled: cancelled and neither begun again nor resolved
    :param error: the newest error
    """

    key: BatchKey
    range: Range
    state: BatchState = BatchState.PLANNED
    records: int | None = None
    instruction: Instruction = Instruction.DELIVER
    attempts: int = 0
    failures: int = 0
    finished: int = 0
    round: int = 1
    deaths: int = 0
    alone: bool = False
    not_before: datetime | None = None
    epoch: int | None = None
    cancelled: bool = False
    error: ErrorInfo | None = None
    receipt: Receipt | None = field(default=None)

    @property
    def begun(self) -> bool:
        """Whether any attempt was ever opened: from then on only a receipt ends the batch."""
        return self.attempts > 0

    def resolved(self, receipt: Receipt) -> Batch:
        """The batch with its verdict. Every settled batch goes through here, so nothing is looked up by name."""
        return Batch(
            self.key,
            self.range,
            VERDICT_STATE[receipt.verdict],
            self.records,
            self.instruction,
            self.attempts,
            self.failures,
            self.finished,
            self.round,
            self.deaths,
            self.alone,
            receipt=receipt,
        )
