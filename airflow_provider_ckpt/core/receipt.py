"""Define the receipt of a batch: the sink's proof of its verdict, with record counts (semantics, sections 1 and 5).

``partition.py`` enforces that only a receipt ends a batch that was begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range


class Verdict(StrEnum):
    """Final result of a batch, as its receipt states it.

    - ``delivered``: its rows are in the sink
    - ``rejected``: all of its records are dead letters
    - ``void``: it was given up, nothing was sent
    """

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Counts:
    """Record counts of one batch, or sums of such counts.

    The invariant ``SumIdentity`` requires that read = delivered + filtered + dead_lettered.

    :param read: records read from the source
    :param delivered: records written to the target
    :param filtered: records that the pipeline's transform left out
    :param dead_lettered: records stored as dead letters
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0

    @property
    def is_balanced(self) -> bool:
        """True if read = delivered + filtered + dead_lettered and no count is negative."""
        outcomes = (self.delivered, self.filtered, self.dead_lettered)
        return min(outcomes) >= 0 and self.read == sum(outcomes)

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
        """Return the counts as a JSON-ready dict, in a fixed order; the keys are the names of the fields."""
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
    :param bound: the source's closed bound when the batch was planned: the position below which no record could appear
        any more; None if the source has none
    :param positions: positions of the records that were read, encoded by the sink for ``recover``, and not stored in
        the ledger; None if the sink does not keep them
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
        """Return the receipt as a JSON-ready dict; :meth:`from_json` is the inverse."""
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


class KnownReceipts(NamedTuple):
    """The part of a partition whose receipts the ledger knows already, so that the sink need not return them again.

    :param generation: generation to which the position belongs; receipts of older generations are known, receipts of
        newer generations are not
    :param position: receipts of this generation are known if their range ends at this position or before it
    """

    generation: int
    position: int

    def covers(self, generation: int, end: int) -> bool:
        """Return whether the ledger knows a receipt of this partition already.

        :param generation: the receipt's generation
        :param end: the end of the receipt's range
        """
        return end <= self.position if generation == self.generation else generation < self.generation
