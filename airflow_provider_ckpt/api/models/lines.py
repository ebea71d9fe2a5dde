"""Models of the number line, which shows the fate of every range of positions in a partition."""

from __future__ import annotations

from enum import StrEnum

from airflow_provider_ckpt.api.models.fields import (
    ApiModel,
    BatchName,
    Moment,
    PartitionKind,
    Position,
    RunLink,
    Span,
)


class Fate(StrEnum):
    """Fate of a piece of the number line, the most urgent first.

    - ``held``, ``in_flight``, ``planned``: not resolved, so the checkpoint does not pass it
    - ``rejected``: all of its records became dead letters
    - ``skipped``: given up
    - ``sent``: sent at most once, without a known receipt
    - ``settled``: resolved, but the receipts are merged or too many to tell each fate; its counts say what is known
    - ``delivered``: has a receipt of delivery; single records may be filtered or dead letters
    """

    HELD = "held"
    IN_FLIGHT = "in_flight"
    PLANNED = "planned"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    SENT = "sent"
    SETTLED = "settled"
    DELIVERED = "delivered"


class Piece(Span):
    """Piece of the number line: one batch, merged receipts, or several batches of one fate in a bucket.

    :param fate: what became of it
    :param batches: number of batches in it; None if there are too many to count
    :param batch: name of the batch, if it is one batch that the ledger still has as such; else None
    :param rejected: number of its batches that were rejected; None if unknown
    :param skipped: number of its batches that were skipped; None if unknown
    :param attempts: largest number of attempts of its batches; 0 below the checkpoint
    :param error_type: error type of the batch; None without an error, or if it is not one batch
    """

    fate: Fate
    batches: int | None
    batch: BatchName | None
    rejected: int | None
    skipped: int | None
    attempts: int
    error_type: str | None


class DeadLetterSpan(Span):
    """Range of a partition in which records became dead letters.

    :param records: number of dead letters
    :param error_type: their error type
    :param state: their state
    :param batch: their batch
    """

    records: int
    error_type: str
    state: str
    batch: BatchName


class Blocked(ApiModel):
    """The first unresolved batch at the checkpoint, and what waits behind it.

    :param batch: the batch
    :param state: its state
    :param batches: number of resolved batches beyond the checkpoint
    :param positions: number of positions that these cover
    """

    batch: BatchName
    state: Fate
    batches: int
    positions: int


class ColumnChangeKind(StrEnum):
    """Kind of the change of a column of the source.

    - ``added``, ``dropped``: the source has it, or has it no more
    - ``retyped``: it has another type
    - ``renamed``: it has another name, and possibly another type
    - ``replaced``: another column has its name
    """

    ADDED = "added"
    DROPPED = "dropped"
    RETYPED = "retyped"
    RENAMED = "renamed"
    REPLACED = "replaced"


class ColumnChange(ApiModel):
    """Change of one column of the source from one schema version to the next.

    :param kind: kind of the change
    :param column: name of the column before the change; of an added column, its name
    :param before: its type before; None for an added column
    :param after: its type after; None for a dropped column
    :param new_name: name of a renamed column after the change; None for all others
    """

    kind: ColumnChangeKind
    column: str
    before: str | None
    after: str | None
    new_name: str | None


class SchemaVersionMark(ApiModel):
    """Version of the source's columns, at the position from which batches are planned under it.

    :param version: number of the version, from 1
    :param generation: generation in which it began
    :param position: the position
    :param columns: number of its columns
    :param changes: changes since the version before, at most 20; none for the first version
    :param changes_left_out: number of further changes
    :param decision: what was decided, one sentence for each changed column; at most 20
    :param actor: user or run that recorded it
    :param run: task of a DAG run that the actor is; None for another actor
    :param at: time at which it was recorded
    """

    version: int
    generation: int
    position: Position
    columns: int
    changes: list[ColumnChange]
    changes_left_out: int
    decision: list[str]
    actor: str
    run: RunLink | None
    at: Moment


class PartitionLine(ApiModel):
    """Number line of a partition, bounded whatever the number of its batches.

    :param partition: id of the partition
    :param kind: ``source``, or the purpose of a side partition
    :param generation: generation
    :param base: first position of the generation
    :param low: low watermark; receipts below it are merged
    :param committed: checkpoint
    :param planned_end: end of what is planned
    :param bound: end of what the source had at the last planning; None if the source told none
    :param window: the range that the answer describes
    :param bucketed: whether several batches of a fate were put together to one piece; ask for a smaller window
    :param pieces: pieces in order of their start; pieces of different fates may overlap if ``bucketed``
    :param gaps: planned or passed ranges without any batch or receipt; below the checkpoint, only if not ``bucketed``
    :param dead_letters: ranges with dead letters in any state, at most 500
    :param dead_letters_left_out: whether there are more
    :param blocked: what blocks the checkpoint; None if nothing does
    :param schema_versions: versions of the source's columns that begin in the window or at its end, by position; at
        most 50, of a wide table fewer
    :param schema_versions_left_out: whether there are more, at smaller positions; ask for a smaller window
    """

    partition: str
    kind: PartitionKind
    generation: int
    base: Position
    low: Position
    committed: Position
    planned_end: Position
    bound: Position | None
    window: Span
    bucketed: bool
    pieces: list[Piece]
    gaps: list[Span]
    dead_letters: list[DeadLetterSpan]
    dead_letters_left_out: bool
    blocked: Blocked | None
    schema_versions: list[SchemaVersionMark]
    schema_versions_left_out: bool


class Line(ApiModel):
    """Number lines of partitions; ``next`` is the cursor of further partitions, None if there are none."""

    pipeline: str
    as_of: Moment
    lag_as_of: Moment | None
    partitions: list[PartitionLine]
    next: str | None
