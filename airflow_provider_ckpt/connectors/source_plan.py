"""Data classes of planning: the request that a run passes to a source, and the plan that the source returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range

SOURCE_END = "reaches"
"""Key in a partition's state (:attr:`Plan.states`) under which a source stores the position after its newest record.

This position can be beyond the closed bound. Lag is counted up to it.
"""

SNAPSHOT = "snapshot"
"""Key in a partition's state (:attr:`Plan.states`) under which a source stores facts about itself at the last planning.

The next planning compares the source with these facts, to detect that records have since got positions below the
checkpoint. A rewind removes the facts; a recovery that accounts for all records found replaces them.
"""


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A part of a source, such as a topic's partition, with its own order of records and its own checkpoint.

    :param id: short and stable name; appears in batch names
    :param identity: identity of the topic, table or directory itself (topic id; system identifier and table oid;
        resolved directory); it reveals that the object was recreated under the same name, which is an error
    """

    id: str
    identity: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A discovered file, recorded permanently in the order of discovery.

    :param ordinal: number in discovery order, from 0
    :param path: absolute path
    :param base: position of the file's first byte: the sum of the sizes of all files before it
    :param size: number of bytes (of rows for Parquet)
    :param etag: text that changes when the file's content does (modification time in ns, size and inode, or the object
        store's etag)
    """

    ordinal: int
    path: str
    base: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Start:
    """Position at which a partition starts for the first time.

    :param position: the position
    :param files: for the files source, the files discovered so far, in order; the position counts their bytes or rows.
        They are recorded with the position, so that it keeps its meaning if other files appear before the first
        planning
    """

    position: int
    files: Sequence[SourceFile] = ()


@dataclass(frozen=True, slots=True)
class RangeToPlan:
    """A range of one partition that a source is asked to split into batches.

    :param partition: id of the partition
    :param start: first position to plan
    :param end: end of the range, if it is a gap that is planned again; None for all records up to the closed bound. If
        it equals ``start``, no batch is wanted, only the closed bound (:attr:`Plan.bounds`)
    """

    partition: str
    start: int
    end: int | None = None

    @property
    def needs_bound(self) -> bool:
        """True if planning must determine the closed bound: the position up to which the source may be read now."""
        return self.end is None or self.end == self.start


FindUnreceipted = Callable[[str, Sequence[Range]], Sequence[Range] | None]
"""Function that looks in planned ranges for records that were never read, since their positions are in no receipt.

It takes the id of a partition and ranges of it, and returns ranges with such records, empty if there are none. It
returns None if the receipts cannot prove for each record whether it was read. A planned batch without an attempt counts
as read, since it will be.
"""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Arguments of one planning.

    :param ranges: ranges to plan, oldest first
    :param records_per_batch: number of records in a batch, exact where the source can count; None if the source chooses
    :param max_records: approximate maximum of records to plan (back-pressure); at least one batch is planned if there
        are records
    :param files: files discovered so far (files source)
    :param states: :attr:`Plan.states` of the previous planning, by partition
    :param committed: checkpoint of each partition: every batch before this position has a verdict
    :param lag_only: whether the plan only serves to measure the lag, so that the source does not wait long for a bound
        to close
    :param find_unreceipted: function that finds records that were never read in ranges that were planned before; None
        if receipts are not available
    """

    ranges: Sequence[RangeToPlan]
    records_per_batch: int | None
    max_records: int
    files: Sequence[SourceFile] = ()
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    lag_only: bool = False
    find_unreceipted: FindUnreceipted | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A range of a source that the ledger records as a batch.

    :param partition: id of the partition
    :param range: positions of the batch
    :param records: expected number of records, if known
    :param expired: whether the source has deleted all records of the range (retention); an event in the ledger reports
        this, and a user decides to skip the batch
    """

    partition: str
    range: Range
    records: int | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of planning; the ledger stores all of it in one transaction.

    :param batches: the batches, in each partition contiguous from the start of the requested range
    :param files: newly discovered files
    :param bounds: closed bound of each partition: the position before which no new records can appear
    :param states: per partition, JSON-ready values that the ledger stores and the source receives at the next planning
    :param more: whether the source has more records than were planned (``max_records`` reached)
    :param refused: an error for each part of the source that cannot be read; the run delivers the rest, then fails
    :param notices: warnings about probable mistakes, one line each
    """

    batches: Sequence[PlannedBatch] = ()
    files: Sequence[SourceFile] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    more: bool = False
    refused: Sequence[CkptError] = ()
    notices: Sequence[str] = ()
