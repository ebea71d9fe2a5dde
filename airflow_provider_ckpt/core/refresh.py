"""Refresh a partition: read all rows of the source in a generation of its own, then replace the target's rows at once.

A refresh covers the positions ``0 <= p < rows_end`` with batches that lanes write to a staging table, and the position
``rows_end`` with the *publishing batch*: its transaction replaces the target's rows by the staged rows. So the
checkpoint is at ``rows_end`` when every row is staged, and past it when the refresh is published.

All batches of a refresh read one snapshot of the source. The snapshot ends with the process that holds it, so another
process cannot read the rest, and begins a new refresh instead. The exception is a refresh of which all rows are staged
and whose publication a user has approved: another process may publish it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Self

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range, subtract
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event

REFRESH = "refresh"
"""Key of a refresh's :class:`RefreshExtent` among the values that the ledger stores for a source partition."""

_COMPLETE = frozenset({Verdict.DELIVERED, Verdict.REJECTED})
"""Verdicts after which every record of a batch is accounted for: it is staged, filtered or a dead letter."""


@dataclass(frozen=True, slots=True)
class RefreshExtent:
    """Positions and snapshot of one refresh.

    :param rows_end: end of the positions that contain rows; the publishing batch covers the position ``rows_end``
    :param snapshot: id of the source's snapshot, which all batches read
    :param detail: JSON-ready values that the source's reader needs for each batch
    :param questioned: whether the publishing batch was held because of the number of rows; if it is planned
        nevertheless, a user has released it
    :param abandoned_from: if one or more refreshes directly before this one were not published, the generation of the
        first of them; otherwise None
    """

    rows_end: int
    snapshot: str
    detail: Mapping[str, Any]
    questioned: bool = False
    abandoned_from: int | None = None

    @property
    def publication(self) -> Range:
        """Range of the publishing batch: the one position after the rows."""
        return Range(self.rows_end, self.rows_end + 1)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self | None:
        """Return the extent of a refresh from the values that the ledger stores for a source partition.

        :param state: the stored values
        :return: the extent; None if the partition's generation is no refresh
        """
        data = state.get(REFRESH)
        return None if data is None else cls(**data)

    def to_state(self) -> dict[str, Any]:
        """Return the extent as JSON-ready values to store with the partition; :meth:`of` is the inverse."""
        data = {
            "rows_end": self.rows_end,
            "snapshot": self.snapshot,
            "detail": dict(self.detail),
            "questioned": self.questioned,
            "abandoned_from": self.abandoned_from,
        }
        return {REFRESH: data}

    def after(self, partition: Partition, ended: RefreshExtent | None, *, skipped: bool) -> Self:
        """Return a copy of this extent with ``abandoned_from`` set, for a refresh that begins now.

        :param partition: the partition, still in the generation before the new refresh
        :param ended: extent of the refresh of that previous generation; None if it is no refresh
        :param skipped: whether a user has skipped the publishing batch of the previous refresh
        """
        if ended is None or not (skipped or is_unpublished(partition, ended)):
            return replace(self, abandoned_from=None)
        earliest = partition.generation if ended.abandoned_from is None else ended.abandoned_from
        return replace(self, abandoned_from=earliest)

    def with_held_publication(self) -> Self:
        """Return a copy of this extent with ``questioned`` set, for a refresh whose publishing batch is held."""
        return replace(self, questioned=True)


class RefreshStep(Enum):
    """Next step of a run for a partition that is replicated by refreshes.

    - ``BEGIN``: begin a new refresh
    - ``CONTINUE``: continue the refresh that has begun
    - ``WAIT``: wait until a user releases or skips a held batch
    - ``NOTHING``: this run's refresh of the partition is published or was given up
    """

    BEGIN = auto()
    CONTINUE = auto()
    WAIT = auto()
    NOTHING = auto()


def next_step(
    partition: Partition, extent: RefreshExtent | None, *, own: bool, begun: bool, is_staged: Callable[[], bool]
) -> RefreshStep:
    """Return the next step of a run for a partition that is replicated by refreshes.

    If a batch is held, the run waits for a user. The process that holds the snapshot of an unpublished refresh
    continues this refresh. Another process continues it only if a user has released its publishing batch and the sink
    still has all staged rows. Otherwise the run begins a new refresh, at most one for each partition.

    :param partition: the partition
    :param extent: extent of the refresh of the partition's generation; None if there is none
    :param own: whether this process holds the snapshot of that refresh
    :param begun: whether this run has already begun a refresh of the partition
    :param is_staged: function that returns whether the sink has all rows of that refresh; it is called only if the
        publishing batch was held
    """
    if any(batch.state is BatchState.HELD for batch in partition.blocking.values()):
        return RefreshStep.WAIT
    if extent is not None and is_unpublished(partition, extent) and (own or (extent.questioned and is_staged())):
        return RefreshStep.CONTINUE
    return RefreshStep.NOTHING if begun else RefreshStep.BEGIN


def is_unpublished(partition: Partition, extent: RefreshExtent | None) -> bool:
    """Return whether a partition's generation is a refresh whose publishing batch has no verdict yet.

    :param partition: the partition
    :param extent: extent of the generation's refresh; None if the generation is no refresh, for which False is returned
    """
    return extent is not None and partition.committed < extent.publication.end


def begin(partition: Partition, *, generation: int, reason: str) -> list[Event]:
    """Begin a new generation for a refresh; unresolved batches of the generation before are superseded.

    A partition in which nothing was planned yet stays in its generation.

    :param partition: the partition, which is changed
    :param generation: the new generation, greater than the partition's
    :param reason: the reason, stored in the event
    :return: the events for the audit log; empty if the partition stays in its generation
    """
    if partition.next_seq == 0:
        return []
    return rewind(partition, partition.base, generation=generation, reason=reason)


def unplanned_rows(partition: Partition, extent: RefreshExtent) -> list[Range]:
    """Return the ranges of rows for which batches have yet to be planned.

    :param partition: the partition
    :param extent: extent of the refresh of the partition's generation
    """
    end = extent.rows_end
    rest = [Range(partition.planned_end, end)] if partition.planned_end < end else []
    return [*partition.gaps(), *rest]


def publication_due(partition: Partition, extent: RefreshExtent) -> bool:
    """Return whether the publishing batch is to be planned: every row has a verdict, and the batch is not planned yet.

    :param partition: the partition
    :param extent: extent of the refresh of the partition's generation
    """
    return partition.committed == partition.planned_end == extent.rows_end


def missing_ranges(receipts: Iterable[Receipt], rows_end: int) -> Sequence[Range]:
    """Return the ranges of a refresh that the sink has neither staged nor rejected, according to the sink's receipts.

    :param receipts: the sink's receipts of the generation
    :param rows_end: end of the positions that contain rows
    """
    complete = [receipt.range for receipt in receipts if receipt.verdict in _COMPLETE]
    return subtract(Range(0, rows_end), complete) if rows_end > 0 else []


@dataclass(frozen=True, slots=True)
class ReplaceLimits:
    """Limits beyond which a refresh is not published without a user's approval.

    :param allow_empty: whether a refresh without rows may replace a target that has rows
    :param max_shrink: largest fraction of the target's rows that may be missing in the refresh, from 0 to 1
    """

    allow_empty: bool = False
    max_shrink: Decimal = Decimal("0.5")

    def refusal_reason(self, staged: int, present: int) -> str | None:
        """Return the reason why a refresh must not be published without approval; None if it may be published.

        For example: ``the refresh has no rows, and the target has 1,200 (sink.replace.allow_empty: false)``.

        :param staged: number of rows that the refresh has staged
        :param present: number of rows that the target has now
        """
        if staged == 0 and present and not self.allow_empty:
            return f"the refresh has no rows, and the target has {present:,} (sink.replace.allow_empty: false)"
        if staged and staged < present * (1 - self.max_shrink):
            return (
                f"the refresh has {staged:,} rows, and the target has {present:,}: "
                f"{1 - staged / present:.0%} fewer (sink.replace.max_shrink: {self.max_shrink:.0%})"
            )
        return None
