"""Batches and receipts: a batch's key, state and attempts, and the receipt that gives its verdict.

These are immutable values (semantics, section 1); the transitions between them are in ``partition.py``.
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
    """State of a batch."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    HELD = "held"
    DELIVERED = "delivered"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    SENT = "sent"
    SUPERSEDED = "superseded"


BLOCKING = frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD})
"""States of unresolved batches, which the checkpoint may not pass."""

RESOLVED = frozenset({BatchState.DELIVERED, BatchState.REJECTED, BatchState.SKIPPED, BatchState.SENT})
"""States that the checkpoint may pass."""


class Verdict(StrEnum):
    """Final result of a batch, as its receipt states it.

    ``delivered``; ``rejected``: all of its records are dead letters; ``void``: skipped.
    """

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"


VERDICT_STATE: Mapping[Verdict, BatchState] = {
    Verdict.DELIVERED: BatchState.DELIVERED,
    Verdict.REJECTED: BatchState.REJECTED,
    Verdict.VOID: BatchState.SKIPPED,
}


class Instruction(StrEnum):
    """Instruction to a lane about a batch; the lane carries it out by claiming the matching verdict in the sink."""

    DELIVER = "deliver"
    REJECT = "reject"
    VOID = "void"

    @property
    def verdict(self) -> Verdict:
        """The verdict that the lane claims."""
        return _VERDICT_OF[self]


_VERDICT_OF = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}


class AttemptOutcome(StrEnum):
    """Outcome of one attempt, as far as it is known."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"
    FAILED = "failed"
    NOT_ATTEMPTED = "not_attempted"
    STAGED = "staged"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    FENCED = "fenced"


_SIDE_PARTITION = re.compile(r"(?:recovery|replay|dlq):(?P<generation>[0-9]+):(?P<source>.+)", re.DOTALL)


def side_generation(partition: str) -> int:
    """Return the generation in a side partition's name; 0 for a source partition."""
    found = _SIDE_PARTITION.match(partition)
    return int(found["generation"]) if found else 0


@dataclass(frozen=True, slots=True, order=True)
class BatchKey:
    """Key of a batch inside its pipeline.

    :param generation: grows with every rewind, from 1
    :param partition: the source partition's id
    :param seq: grows by one per partition and generation, from 0; never reused
    """

    generation: int
    partition: str
    seq: int

    @property
    def side(self) -> bool:
        """Return whether the batch belongs to a side partition, which reads a range of a source partition again."""
        return _SIDE_PARTITION.match(self.partition) is not None

    @property
    def dead_letters(self) -> bool:
        """Return whether the batch replays dead letters; its positions then number dead letters, not source records."""
        return self.side and self.partition.startswith("dlq:")

    @property
    def source(self) -> str:
        """The id of the source partition that the batch's records come from."""
        found = _SIDE_PARTITION.match(self.partition)
        return self.partition if found is None else found["source"]

    def __str__(self) -> str:
        return f"{self.partition}#{self.seq}" + (f"@{self.generation}" if self.generation > 1 else "")

    @classmethod
    def parse(cls, text: str, *, generation: int | None = None) -> BatchKey:
        """Parse ``partition#seq`` or ``partition#seq@generation``.

        :param text: the text that a user wrote
        :param generation: the generation if the text names none; 1 by default
        :raises ValueError: if the text has another form
        """
        found = re.fullmatch(r"(?P<partition>.+)#(?P<seq>[0-9]+)(?:@(?P<generation>[0-9]+))?", text, re.DOTALL)
        if found is None:
            raise ValueError(f"{text!r} is no batch; write partition#seq, as `airflow ckpt status` shows it")
        return cls(int(found["generation"] or generation or 1), found["partition"], int(found["seq"]))

    def to_json(self) -> list[Any]:
        """Return a JSON-ready list; :meth:`from_json` is its inverse."""
        return [self.generation, self.partition, self.seq]

    @classmethod
    def from_json(cls, data: list[Any]) -> BatchKey:
        """Restore a key from the output of :meth:`to_json`."""
        return cls(int(data[0]), str(data[1]), int(data[2]))


@dataclass(frozen=True, slots=True)
class Counts:
    """Record counts of one batch; ``SumIdentity`` is read = delivered + filtered + dead_lettered."""

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0

    @property
    def balanced(self) -> bool:
        """Return whether ``SumIdentity`` holds and no count is negative."""
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
        """Return a JSON-ready dict in a fixed order."""
        return {
            "read": self.read,
            "delivered": self.delivered,
            "filtered": self.filtered,
            "dead_lettered": self.dead_lettered,
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sink's proof of a batch's verdict, written in the same transaction as the batch's rows.

    :param key: the batch
    :param range: the source positions that the batch covers
    :param verdict: the batch's verdict
    :param epoch: the epoch of the run that wrote the receipt
    :param attempt: the number of the attempt that wrote the receipt, from 1
    :param counts: record counts of the batch
    :param at: when the receipt was claimed, UTC
    :param bound: the source's closed bound when the batch was planned, as a position, if the source has one
    :param positions: positions of the records that were read, encoded by the sink for ``recover``; not stored in the
        ledger
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
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
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
        """Restore a receipt from the output of :meth:`to_json`."""
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
    """One micro-batch, as the ledger stores it.

    :param key: the batch's key
    :param range: the source positions that it covers
    :param state: its state
    :param records: number of records that planning counted or estimated; None if it did neither
    :param instruction: the instruction for the next attempt
    :param attempts: number of attempts opened so far, which is also the number of the newest one
    :param failures: failures that lanes reported in this round
    :param finished: failures that lanes reported in all rounds (``n`` in the formula of the retry delay)
    :param round: 1 in the first submission; incremented when a round's attempts are used up
    :param deaths: number of times that the executor died while the batch ran alone
    :param alone: whether the next attempt must run alone in its wave
    :param not_before: earliest start of the next attempt, UTC
    :param epoch: the epoch of the open attempt, while in flight
    :param cancelled: whether the batch was cancelled and is neither started again nor resolved
    :param error: the newest error
    :param receipt: the sink's receipt, once it is known
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
    def started(self) -> bool:
        """Return whether any attempt was ever opened; from then on only a receipt resolves the batch."""
        return self.attempts > 0

    def resolved(self, receipt: Receipt) -> Batch:
        """Return the batch resolved by a receipt.

        Positional arguments instead of ``dataclasses.replace``, because every settled batch passes through here.
        """
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
