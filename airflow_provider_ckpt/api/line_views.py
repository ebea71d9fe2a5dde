"""Convert the number line of a partition, as the ledger returns it, to the pieces that the API shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_ckpt.api.models.fields import Span
from airflow_provider_ckpt.api.models.lines import (
    Blocked,
    ColumnChange,
    ColumnChangeKind,
    DeadLetterSpan,
    Fate,
    PartitionLine,
    Piece,
    SchemaVersionMark,
)
from airflow_provider_ckpt.api.views import partition_kind, run_link, text
from airflow_provider_ckpt.core.column_change import Change, ChangeKind
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.queries import line
from airflow_provider_ckpt.ledger.queries.line_batches import BatchPiece
from airflow_provider_ckpt.ledger.queries.schema_versions import ShownVersion

_MAX_CHANGES = 20
_CHANGES: Mapping[ChangeKind, ColumnChangeKind] = {
    ChangeKind.NEW: ColumnChangeKind.ADDED,
    ChangeKind.DROPPED: ColumnChangeKind.DROPPED,
    ChangeKind.OTHER_TYPE: ColumnChangeKind.RETYPED,
    ChangeKind.RENAMED: ColumnChangeKind.RENAMED,
    ChangeKind.REPLACED: ColumnChangeKind.REPLACED,
    ChangeKind.EXCHANGED: ColumnChangeKind.REPLACED,
}


def partition_line(found: line.PartitionLine) -> PartitionLine:
    """Return the API model of a partition's number line.

    :param found: the number line, as the ledger returned it
    """
    pieces = [*_receipt_pieces(found), *map(_batch_piece, found.batches)]
    blocked = found.blocked
    return PartitionLine(
        partition=found.partition,
        kind=partition_kind(found.partition),
        generation=found.generation,
        base=found.base,
        low=found.low_watermark,
        committed=found.committed,
        planned_end=found.planned_end,
        bound=found.bound,
        window=Span.of(found.window),
        bucketed=found.grouped,
        pieces=sorted(pieces, key=lambda piece: (piece.start, piece.end)),
        gaps=[Span.of(gap) for gap in found.gaps],
        dead_letters=[
            DeadLetterSpan(
                start=item.range.start,
                end=item.range.end,
                records=item.records,
                error_type=item.error_type,
                state=item.state,
                batch=str(item.key),
            )
            for item in found.dead_letters
        ],
        dead_letters_left_out=found.dead_letters_left_out,
        blocked=None
        if blocked is None
        else Blocked(
            batch=str(blocked.key),
            state=Fate(blocked.state.value),
            batches=blocked.batches,
            positions=blocked.positions,
        ),
        schema_versions=[_version_mark(item) for item in found.schema_versions],
        schema_versions_left_out=found.schema_versions_left_out,
    )


def _version_mark(found: ShownVersion) -> SchemaVersionMark:
    return SchemaVersionMark(
        version=found.number,
        generation=found.generation,
        position=found.position,
        columns=found.columns,
        changes=[_column_change(change) for change in found.changes[:_MAX_CHANGES]],
        changes_left_out=max(0, len(found.changes) - _MAX_CHANGES),
        decision=[text(sentence) or "" for sentence in found.decision[:_MAX_CHANGES]],
        actor=text(found.actor) or "",
        run=run_link(found.actor),
        at=found.at,
    )


def _column_change(change: Change) -> ColumnChange:
    before, after = change.before, change.after
    return ColumnChange(
        kind=_CHANGES[change.kind],
        column=text(change.name) or "",
        before=None if before is None else text(before.type),
        after=None if after is None else text(after.type),
        new_name=text(after.name) if after is not None and change.kind is ChangeKind.RENAMED else None,
    )


def _batch_piece(found: BatchPiece) -> Piece:
    state = found.state.value
    return Piece(
        start=found.range.start,
        end=found.range.end,
        fate=Fate(state),
        batches=found.batches,
        batch=str(found.key) if found.batches == 1 else None,
        rejected=found.batches if state == Fate.REJECTED else 0,
        skipped=found.batches if state == Fate.SKIPPED else 0,
        attempts=found.attempts,
        error_type=found.error_type,
    )


def _receipt_pieces(found: line.PartitionLine) -> Iterator[Piece]:
    for receipt in found.receipts:
        yield _settled(receipt.range, _fate(receipt), receipt.batches, receipt.rejected, receipt.skipped)
    for span in found.sampled:
        yield _settled(span, Fate.SETTLED, None, None, None)


def _settled(span: Range, fate: Fate, batches: int | None, rejected: int | None, skipped: int | None) -> Piece:
    return Piece(
        start=span.start,
        end=span.end,
        fate=fate,
        batches=batches,
        batch=None,
        rejected=rejected,
        skipped=skipped,
        attempts=0,
        error_type=None,
    )


def _fate(receipt: RangeReceipt) -> Fate:
    """Return the state that all batches of a range receipt have in common; ``settled`` if their states may differ.

    :param receipt: the receipt
    """
    for fate, batches in (
        (Fate.REJECTED, receipt.rejected),
        (Fate.SKIPPED, receipt.skipped),
        (Fate.SENT, receipt.sent),
    ):
        if batches == receipt.batches:
            return fate
    return Fate.DELIVERED if receipt.batches == 1 else Fate.SETTLED
