"""Models of the number line of a partition, which shows the state of the batches at each range of its positions."""

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
    """State of the batches of a piece of the number line, in order of urgency.

    - ``held``: waits until a user releases or skips it; the checkpoint does not pass it
    - ``in_flight``: is being sent; the checkpoint does not pass it
    - ``planned``: waits to be sent, for the first time or again; the checkpoint does not pass it
    - ``rejected``: all records became dead letters
    - ``skipped``: was given up, and nothing was sent
    - ``sent``: was sent at most once, and no receipt of it is known
    - ``settled``: resolved, each batch in one of the states ``delivered``, ``rejected``, ``skipped`` and ``sent``. The
      answer does not name the state of each, because their receipts were merged or are too many
    - ``delivered``: the sink has a receipt of the delivery; some records may have been filtered or become dead letters
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
    """A piece of the number line: a range of positions with the batches that cover it.

    A piece is one batch, or one receipt of one or several batches that the checkpoint has passed. If there are too many
    to list, the window is divided into equal buckets; a piece then combines all batches of one state, or all receipts,
    of a bucket.

    :param fate: state of the batches
    :param batches: number of batches; None if not known, because there are too many to count
    :param batch: name of the batch; None if there are several batches, or the ledger stores only their receipts
    :param rejected: number of rejected batches; None if not known
    :param skipped: number of skipped batches; None if not known
    :param attempts: largest number of attempts of one of the batches; 0 if the ledger stores only their receipts
    :param error_type: type of the newest error of a single batch; None for several batches, or without an error
    """

    fate: Fate
    batches: int | None
    batch: BatchName | None
    rejected: int | None
    skipped: int | None
    attempts: int
    error_type: str | None


class DeadLetterSpan(Span):
    """A range of a partition in which records of one batch became dead letters of one error type.

    :param records: number of dead letters; the range may contain other records, too
    :param error_type: error type of the dead letters
    :param state: state of the dead letters
    :param batch: name of the batch
    """

    records: int
    error_type: str
    state: str
    batch: BatchName


class Blocked(ApiModel):
    """The first unresolved batch of a partition, which the checkpoint cannot pass, and the number of batches behind it.

    :param batch: name of the unresolved batch
    :param state: state of the unresolved batch: ``planned``, ``in_flight`` or ``held``
    :param batches: number of resolved batches beyond the checkpoint; the checkpoint passes each of them once all
        unresolved batches before it are resolved
    :param positions: number of positions that the resolved batches cover
    """

    batch: BatchName
    state: Fate
    batches: int
    positions: int


class ColumnChangeKind(StrEnum):
    """Kind of a change of one column of the source between two schema versions.

    - ``added``: only the later version has the column
    - ``dropped``: only the earlier version has the column
    - ``retyped``: the column has another type
    - ``renamed``: the column has another name, and possibly another type
    - ``replaced``: the name now belongs to another column, because the column was dropped and another one was added
      under its name, or because columns exchanged their names
    """

    ADDED = "added"
    DROPPED = "dropped"
    RETYPED = "retyped"
    RENAMED = "renamed"
    REPLACED = "replaced"


class ColumnChange(ApiModel):
    """Change of one column of the source from one schema version to the next.

    :param kind: kind of the change
    :param column: name of the column in the earlier version; for an added column, in the later one
    :param before: type of the column in the earlier version; None for an added column
    :param after: type of the column in the later version; None for a dropped column
    :param new_name: name of a renamed column in the later version; None for other kinds of change
    """

    kind: ColumnChangeKind
    column: str
    before: str | None
    after: str | None
    new_name: str | None


class SchemaVersionMark(ApiModel):
    """A schema version of a source partition: the source's columns that are valid from a position on.

    :param version: number of the schema version, from 1
    :param generation: generation in which the schema version began
    :param position: first position whose batches are planned under the schema version
    :param columns: number of columns of the schema version
    :param changes: changes of columns since the version before, at most 20; empty for the first version
    :param changes_left_out: number of further changes
    :param decision: how runs handle each changed column, as a sentence each; at most 20
    :param actor: owner of the lease of the run that recorded the schema version
    :param run: the Airflow task that recorded the schema version; None if no task did, but for example a command
    :param at: time at which the schema version was recorded
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
    """Number line of a partition: the state of the batches at each range of positions in a window.

    The number of pieces is limited. If the window has more than 1,000 batches or receipts, it is divided into equal
    *buckets*, and all batches of one state, or all receipts, of a bucket form one piece. The pieces of a smaller window
    are more precise.

    :param partition: id of the partition
    :param kind: ``source``, or the purpose of a side partition
    :param generation: number of the present generation, which the number line shows
    :param base: first position of the generation
    :param low: low watermark: below it, receipts are merged, so that only sums of their counts are known
    :param committed: the checkpoint
    :param planned_end: end of the plan: all batches that are planned so far end at or before this position
    :param bound: end of the records that the source had at the last planning, up to which batches could be planned;
        None if the source reported none
    :param window: the range of positions that the number line shows
    :param bucketed: whether batches or receipts were put together by buckets
    :param pieces: the pieces, by start; if ``bucketed``, pieces of different states may overlap
    :param gaps: ranges before ``planned_end`` that neither a batch nor a receipt covers, at most 100; if there are more
        than 1,000 receipts, only gaps beyond the checkpoint are listed
    :param dead_letters: ranges with dead letters in any state, at most 500
    :param dead_letters_left_out: whether there are further ranges with dead letters
    :param blocked: the first unresolved batch, which the checkpoint cannot pass; None if all batches are resolved
    :param schema_versions: schema versions that begin in the window or at its end, by position; at most 50, and fewer
        if the table has more than 100 columns
    :param schema_versions_left_out: whether there are further schema versions at smaller positions of the window
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
    """Page of number lines of the partitions of a pipeline.

    :param pipeline: name of the pipeline
    :param as_of: time at which the ledger was read
    :param lag_as_of: time of the last planning, at which the ends of the source were read; None if the pipeline was
        never planned
    :param partitions: number lines, by id of the partition; at most 20
    :param next: cursor of the next page; None on the last page
    """

    pipeline: str
    as_of: Moment
    lag_as_of: Moment | None
    partitions: list[PartitionLine]
    next: str | None
