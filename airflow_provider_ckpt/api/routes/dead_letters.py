"""Routes of dead letters: groups, entries of the index, and records with their bytes.

The bytes are data of the source. To see them, a user needs the right to act on the pipeline. Each request returns a
limited number of bytes, and the audit log records each access.
"""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from airflow_provider_ckpt.api import cursors
from airflow_provider_ckpt.api.access import Access, AccessDep, Acted, Seen
from airflow_provider_ckpt.api.dead_letter_records import MAX_SEARCHED, dead_letter_record, read
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.api.models import dead_letters as models
from airflow_provider_ckpt.api.models.dead_letters import (
    DeadLetterEntry,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLetterPage,
    DeadLetterRecord,
    DeadLetterStateName,
    ExportRequest,
    RecordPage,
    RecordsRequest,
)
from airflow_provider_ckpt.api.models.fields import Moment
from airflow_provider_ckpt.api.routes.parameters import Cursor, Limit, Texts, batch_key
from airflow_provider_ckpt.core.dead_letters import UNDELIVERED, DeadLetterState, IndexEntry, newest_reread
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.pages import DeadLetterFilter
from airflow_provider_ckpt.replication.actions.dead_letters import contains_text, export_document

router = APIRouter(tags=["dead letters"])

_GROUPS = 1000
_EXPORTED = 100_000
_States = Annotated[list[DeadLetterStateName], Query(max_length=10)]


def dead_letter_filter(found: models.DeadLetterFilter) -> DeadLetterFilter:
    """Convert a request's selection to the ledger's form; without states, it selects those not replayed or discarded.

    :param found: the selection from a request
    """
    states = [DeadLetterState(state) for state in found.states] or sorted(UNDELIVERED)
    return DeadLetterFilter(states, found.types, [batch_key(name) for name in found.batches], found.since, found.until)


@router.get("/pipelines/{pipeline}/dead-letters/groups", operation_id="group_dead_letters")
def group_dead_letters(
    found: Seen,
    ledger: OpenedLedger,
    error_type: Texts = [],  # noqa: B006  # FastAPI copies it
    state: _States = [],  # noqa: B006
    since: Moment | None = None,
    until: Moment | None = None,
) -> DeadLetterGroups:
    """Return the numbers of dead letters by hour, error type and state, newest hour first.

    Without ``state``, only dead letters that are neither replayed nor discarded are counted.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param error_type: only dead letters of one of these error types
    :param state: only dead letters in one of these states
    :param since: only dead letters of batches whose receipt was claimed at this time or later
    :param until: only dead letters of batches whose receipt was claimed before this time
    """
    chosen = dead_letter_filter(models.DeadLetterFilter(types=error_type, states=state, since=since, until=until))
    groups, totals = ledger.dead_letter_groups(found.name, chosen, limit=_GROUPS + 1)
    return DeadLetterGroups(
        items=[DeadLetterGroup(**group) for group in groups[:_GROUPS]], left_out=len(groups) > _GROUPS, by_state=totals
    )


@router.get("/pipelines/{pipeline}/dead-letters", operation_id="list_dead_letters")
def list_dead_letters(
    found: Seen,
    ledger: OpenedLedger,
    error_type: Texts = [],  # noqa: B006  # FastAPI copies it
    state: _States = [],  # noqa: B006
    batch: Texts = [],  # noqa: B006
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeadLetterPage:
    """Return a page of the dead letter index, by batch, error type and number.

    Without ``state``, only dead letters that are neither replayed nor discarded are listed.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param error_type: only dead letters of one of these error types
    :param state: only dead letters in one of these states
    :param batch: only dead letters of the batches of these names
    :param since: only dead letters of batches whose receipt was claimed at this time or later
    :param until: only dead letters of batches whose receipt was claimed before this time
    :param limit: maximum number of entries
    :param cursor: value of ``next`` in the previous page; None for the first page
    """
    chosen = dead_letter_filter(
        models.DeadLetterFilter(types=error_type, states=state, batches=batch, since=since, until=until)
    )
    after = cursors.decode(cursor, int, str, int, str, int)
    entries, rereads = ledger.dead_letter_page(found.name, chosen, after=after, limit=limit + 1)
    page = entries[:limit]
    items = [_entry(entry, newest_reread(entry, rereads)) for entry in page]
    return DeadLetterPage(items=items, next=_after(page[-1]) if len(entries) > limit else None)


def _entry(entry: IndexEntry, read_again: int | None) -> DeadLetterEntry:
    dead_letters = entry.dead_letters
    return DeadLetterEntry(
        start=entry.range.start,
        end=entry.range.end,
        batch=str(dead_letters.key),
        partition=dead_letters.key.partition,
        error_type=dead_letters.error_type,
        first=dead_letters.first,
        records=dead_letters.records,
        state=entry.state.value,
        at=entry.at,
        replays=entry.replays,
        replay=entry.replay,
        read_again=read_again,
    )


def _after(entry: IndexEntry) -> str:
    dead_letters = entry.dead_letters
    return cursors.encode(
        dead_letters.key.generation,
        dead_letters.key.partition,
        dead_letters.key.seq,
        dead_letters.error_type,
        dead_letters.first,
    )


@router.post("/pipelines/{pipeline}/dead-letters/records", operation_id="read_dead_letters")
def read_dead_letters(found: Acted, ledger: OpenedLedger, access: AccessDep, wish: RecordsRequest) -> RecordPage:
    """Return a page of dead letters with their bytes, which are read from the pipeline's dead letter store.

    The user needs the right to act on the pipeline, and the audit log records each request.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param access: rights of the user
    :param wish: body of the request
    """
    after = cursors.decode(wish.cursor, int, str, int, str, int)
    chosen = dead_letter_filter(wish.filter)
    _record_look(ledger, found.name, "dead_letters_read", wish, access)
    items: list[DeadLetterRecord] = []
    searched = 0
    for searched, item in enumerate(read(ledger, found.name, chosen, after), start=1):
        if wish.query is None or contains_text(item.stored, wish.query):
            items.append(dead_letter_record(item, wish.max_bytes))
        if len(items) == wish.limit or searched == MAX_SEARCHED:
            return RecordPage(items=items, next=cursors.encode(*item.key), searched=searched)
    return RecordPage(items=items, next=None, searched=searched)


@router.post(
    "/pipelines/{pipeline}/dead-letters/export",
    operation_id="export_dead_letters",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
def export_dead_letters(
    found: Acted, ledger: OpenedLedger, access: AccessDep, wish: ExportRequest
) -> StreamingResponse:
    """Return dead letters as JSON lines with their bytes in base64, in the format of ``airflow ckpt dlq export``.

    The answer has at most 100,000 dead letters. The user needs the right to act on the pipeline, and the audit log
    records each request.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param access: rights of the user
    :param wish: body of the request
    """
    chosen = dead_letter_filter(wish.filter)
    _record_look(ledger, found.name, "dead_letters_exported", wish, access)
    query = wish.query
    dead_letters = read(ledger, found.name, chosen, None)
    wanted = (item for item in dead_letters if query is None or contains_text(item.stored, query))
    lines = (json.dumps(export_document(item.entry, item.stored)) + "\n" for item in islice(wanted, _EXPORTED))
    first = list(islice(lines, 1))  # if the first read fails, the answer is an error
    headers = {"Content-Disposition": f'attachment; filename="{found.name}-dead-letters.jsonl"'}
    return StreamingResponse(chain(first, lines), media_type="application/x-ndjson", headers=headers)


def _record_look(
    ledger: Ledger, pipeline: str, kind: str, wish: RecordsRequest | ExportRequest, access: Access
) -> None:
    """Record in the audit log that a user is about to see bytes of dead letters.

    If the event cannot be recorded, the error ends the request, so that no bytes are shown without a record.

    :param ledger: the ledger
    :param pipeline: name of the pipeline
    :param kind: kind of the event
    :param wish: the request, which the event stores
    :param access: rights of the user, who is the event's actor
    """
    ledger.record_look(pipeline, kind, wish.model_dump(mode="json", exclude_none=True), actor=access.actor)
