"""Routes of number lines and of batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from airflow_provider_ckpt.api import cursors, views
from airflow_provider_ckpt.api.access import Seen
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.api.line_views import partition_line
from airflow_provider_ckpt.api.models.batches import (
    Attempt,
    BatchDetail,
    BatchPage,
    BatchRow,
    BatchStateName,
    ReceiptRow,
)
from airflow_provider_ckpt.api.models.fields import Failure
from airflow_provider_ckpt.api.models.lines import Line
from airflow_provider_ckpt.api.routes.parameters import Cursor, Limit, PositionText, Text, batch_key, position
from airflow_provider_ckpt.core.batch import BLOCKING, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.ledger.queries.pages import BatchFilter

router = APIRouter(tags=["batches"])

_LINES = 20
_END = 2**63 - 1


@router.get("/pipelines/{pipeline}/line", operation_id="get_line")
def get_line(
    found: Seen,
    ledger: OpenedLedger,
    partition: Text = None,
    start: PositionText = None,
    end: PositionText = None,
    buckets: Annotated[int, Query(ge=10, le=1000)] = 400,
    cursor: Cursor = None,
) -> Line:
    """Return number lines of a pipeline's partitions: the state of the batches at each range of positions.

    Without ``partition``, the answer is a page of number lines, ordered by id of the partition. With ``partition``, the
    answer has only the number line of this partition, and ``start`` and ``end`` choose the window of positions. By
    default the window begins shortly before the low watermark, and ends at the end of the plan or at the source's end
    as of the last planning, whichever is later.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param partition: only the partition of this id
    :param start: start of the window; only with ``partition`` and ``end``
    :param end: end of the window, exclusive; only with ``partition`` and ``start``
    :param buckets: number of buckets into which the window is divided if it has many batches or receipts
    :param cursor: value of ``next`` in the previous page; None for the first page
    """
    window = _window(start, end)
    if window is not None and partition is None:
        raise HTTPException(422, "Name the partition in which start and end lie.")
    after = cursors.decode(cursor, str)
    lines = ledger.lines(
        found.name,
        None if partition is None else [partition],
        after=after[0] if after else None,
        limit=_LINES + 1,
        window=window,
        buckets=buckets,
    )
    if partition is not None and not lines:
        raise HTTPException(404, f"Pipeline {found.name!r} has no partition of this name.")
    return Line(
        pipeline=found.name,
        as_of=datetime.now(UTC),
        lag_as_of=found.planned_at,
        partitions=[partition_line(item) for item in lines[:_LINES]],
        next=cursors.encode(lines[_LINES - 1].partition) if len(lines) > _LINES else None,
    )


def _window(start: str | None, end: str | None) -> Range | None:
    """Return the window between two positions; None if neither is given.

    :param start: first position, in decimal digits
    :param end: position after the last, in decimal digits
    :raises HTTPException: with status 422 if only one is given, or the second is not greater
    """
    first, last = position(start), position(end)
    if first is None and last is None:
        return None
    if first is None or last is None or first >= last:
        raise HTTPException(422, "Give start, and an end that is greater.")
    return Range(first, last)


@router.get("/pipelines/{pipeline}/batches", operation_id="list_batches")
def list_batches(
    found: Seen,
    ledger: OpenedLedger,
    state: Annotated[list[BatchStateName], Query(max_length=10)] = [],  # noqa: B006  # FastAPI copies it
    partition: Text = None,
    error_type: Text = None,
    search: Text = None,
    start: PositionText = None,
    end: PositionText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> BatchPage:
    """Return a page of the batches for which the ledger stores a row and not only receipts, by partition and number.

    These are the batches beyond the checkpoints, and batches that were sent at most once, until their receipt is known.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param state: only batches in one of these states
    :param partition: only batches of the partition of this id
    :param error_type: only batches whose newest error has this type
    :param search: only the batch of this name, such as ``orders-0#17``; or, if the text is not a batch's name, only
        batches of partitions whose id contains it
    :param start: only batches that end after this position
    :param end: only batches that start before this position
    :param limit: maximum number of batches
    :param cursor: value of ``next`` in the previous page; None for the first page
    """
    first, last = position(start), position(end)
    window = None
    if first is not None or last is not None:
        window = _window(str(START if first is None else first), str(_END if last is None else last))
    chosen = BatchFilter(tuple(state), partition, error_type, *_search(search), window)
    after = cursors.decode(cursor, str, int)
    batches, states = ledger.batch_page(found.name, chosen, after=after, limit=limit + 1)
    page = batches[:limit]
    last_key = page[-1].key if page else None
    return BatchPage(
        items=[_row(batch) for batch in page],
        next=cursors.encode(last_key.partition, last_key.seq) if last_key and len(batches) > limit else None,
        by_state=states,
    )


def _search(text: str | None) -> tuple[BatchKey | None, str | None]:
    """Return the batch key that a search text names, or else the text, which is then searched for in partition ids.

    :param text: the search text; None without a search
    :return: pair of the batch key and the text; at least one of them is None
    """
    if text is None:
        return None, None
    try:
        return BatchKey.parse(text), None
    except ValueError:
        return None, text


@router.get("/pipelines/{pipeline}/batch", operation_id="get_batch")
def get_batch(found: Seen, ledger: OpenedLedger, name: Annotated[str, Query(max_length=2000)]) -> BatchDetail:
    """Return one batch with its attempts, the numbers of its dead letters, and its newest events.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param name: name of the batch
    """
    key = batch_key(name)
    try:
        details = ledger.inspect(found.name, key)
    except LedgerStateError as error:
        raise HTTPException(404, str(error)) from error
    batches, _ = ledger.batch_page(found.name, BatchFilter(key=key), limit=1)
    blocked = next((line.blocked for line in ledger.lines(found.name, [key.partition], buckets=10)), None)
    events, _ = ledger.event_page(found.name, key=key, limit=100)
    return BatchDetail(
        batch=str(key),
        row=_row(batches[0]) if batches and batches[0].key == key else None,
        remark=details["remark"],
        blocked_batches=blocked.batches if blocked is not None and blocked.key == key else 0,
        attempts=[
            Attempt(
                number=item["attempt"],
                epoch=item["epoch"],
                owner=views.text(item["run"]) or "",
                run=views.run_link(item["run"]),
                began_at=item["began"],
                ended_at=item["ended"],
                outcome=item["outcome"],
                error_type=item["error_type"],
            )
            for item in details["attempt_history"]
        ],
        dead_letters=details["dead_letters"],
        events=[views.event_row(row) for row in events],
    )


def _row(batch: Batch) -> BatchRow:
    receipt = batch.receipt
    return BatchRow(
        start=batch.range.start,
        end=batch.range.end,
        batch=str(batch.key),
        partition=batch.key.partition,
        generation=batch.key.generation,
        seq=batch.key.seq,
        state=batch.state.value,
        blocks=batch.state in BLOCKING,
        records=batch.records,
        instruction=batch.instruction.value,
        attempts=batch.attempts,
        failures=batch.failures,
        round=batch.round,
        deaths=batch.deaths,
        cancelled=batch.cancelled,
        waits_for=_waits_for(batch),
        not_before=batch.not_before,
        epoch=batch.epoch,
        error=Failure.of(batch.error) if batch.error else None,
        receipt=None
        if receipt is None
        else ReceiptRow(
            verdict=receipt.verdict.value,
            epoch=receipt.epoch,
            attempt=receipt.attempt,
            counts=views.counts(receipt.counts),
            at=receipt.at,
        ),
    )


def _waits_for(batch: Batch) -> Any:
    if batch.state is BatchState.HELD:
        return "person"
    if batch.state is not BatchState.PLANNED:
        return None
    is_later = batch.not_before is not None and batch.not_before > datetime.now(UTC)
    return "time" if is_later else "run"
