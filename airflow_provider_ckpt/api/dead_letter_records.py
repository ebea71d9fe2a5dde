"""Read dead letters with their bytes from the place where a pipeline stores them: its sink or its dead letter store."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_provider_ckpt.api.models.dead_letters import Bytes, DeadLetterRecord, Header
from airflow_provider_ckpt.api.models.fields import Failure, shorten
from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.dead_letter_lookup import read_dead_letters
from airflow_provider_ckpt.core.dead_letters import UNKNOWN_TYPE, IndexEntry
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.pages import DeadLetterFilter
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.replication.actions.dead_letters import load_index
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
from airflow_provider_ckpt.replication.setup import PipelineContext, stored_pipeline

MAX_SEARCHED = 10_000
"""Maximum number of dead letters that one request reads."""

_ENTRIES = 200
_HEADER_BYTES = 4_096
_HEADERS = 100


@dataclass(frozen=True, slots=True)
class ReadDeadLetter:
    """Dead letter whose content was read.

    :param entry: entry of the ledger's index for the dead letter
    :param number: number of the dead letter, from 0, among the batch's dead letters of the same error type
    :param stored: content of the dead letter
    """

    entry: IndexEntry
    number: int
    stored: StoredDeadLetter

    @property
    def key(self) -> tuple[int, str, int, str, int]:
        """Key by which dead letters are ordered: generation, partition, seq, error type and number."""
        key = self.entry.dead_letters.key
        return key.generation, key.partition, key.seq, self.entry.dead_letters.error_type, self.number


def read(
    ledger: Ledger, pipeline: str, chosen: DeadLetterFilter, after: Sequence[Any] | None
) -> Iterator[ReadDeadLetter]:
    """Yield the chosen dead letters with their content, in the order of their batches.

    :param ledger: the ledger
    :param pipeline: name of the pipeline
    :param chosen: selection of dead letters
    :param after: key of the last dead letter that was read before; None to begin with the first
    :raises SinkError: if the sink cannot be read, or holds fewer dead letters than the index names
    """
    setup = PipelineContext(
        stored_pipeline(ledger, pipeline, instead="the recovery DAG"), ledger, resolve_connection, of_this_process()
    )
    with closing(setup.open_sink()) as sink:
        for entries in _entries(setup, chosen, after):
            by_dead_letters = {entry.dead_letters: entry for entry in entries}
            wanted = sorted(by_dead_letters, key=lambda item: (item.source, item))
            for dead_letters, found in read_dead_letters(sink, wanted):
                for number, stored in enumerate(found, start=dead_letters.first):
                    yield ReadDeadLetter(by_dead_letters[dead_letters], number, stored)


def _entries(
    setup: PipelineContext, chosen: DeadLetterFilter, after: Sequence[Any] | None
) -> Iterator[list[IndexEntry]]:
    """Yield the chosen entries of the index in groups, without dead letters that were read before.

    :param setup: the pipeline with its ledger and connections
    :param chosen: selection of dead letters
    :param after: key of the last dead letter that was read before; None to begin with the first
    """
    ledger, pipeline = setup.ledger, setup.pipeline.name
    place = None if after is None else (*after[:4], -1)
    while True:
        entries, _ = ledger.dead_letter_page(pipeline, chosen, after=place, limit=_ENTRIES)
        if any(entry.dead_letters.error_type == UNKNOWN_TYPE for entry in entries):
            load_index(setup)
            entries, _ = ledger.dead_letter_page(pipeline, chosen, after=place, limit=_ENTRIES)
        if not entries:
            return
        last = entries[-1].dead_letters
        place = (last.key.generation, last.key.partition, last.key.seq, last.error_type, last.first)
        if rest := [left for entry in entries if (left := _unread(entry, after)) is not None]:
            yield rest


def _unread(entry: IndexEntry, after: Sequence[Any] | None) -> IndexEntry | None:
    """Return the part of an index entry after the dead letter that was read last; None if that was its last one.

    :param entry: entry of the index
    :param after: key of the dead letter that was read last; None if none was read
    """
    dead_letters = entry.dead_letters
    place = (dead_letters.key.generation, dead_letters.key.partition, dead_letters.key.seq, dead_letters.error_type)
    if after is None or place != tuple(after[:4]) or dead_letters.first > after[4]:
        return entry
    first = after[4] + 1
    return replace(entry, dead_letters=dead_letters.part(first, dead_letters.end)) if first < dead_letters.end else None


def dead_letter_record(found: ReadDeadLetter, max_bytes: int) -> DeadLetterRecord:
    """Return a dead letter as a model of the API.

    :param found: the dead letter
    :param max_bytes: maximum number of bytes of the key and of the value; further bytes are left out
    """
    dead_letter = found.stored.dead_letter
    return DeadLetterRecord(
        batch=str(found.stored.source.key),
        number=found.number,
        position=dead_letter.position,
        state=found.entry.state.value,
        at=found.stored.at,
        error=Failure.of(dead_letter.error, limit=20_000),
        key=_bytes(dead_letter.key, max_bytes),
        value=_bytes(dead_letter.value, max_bytes),
        origin={name: shorten(value, _HEADER_BYTES) for name, value in dead_letter.headers.items()},
        headers=[
            Header(name=shorten(name, _HEADER_BYTES), value=_bytes(value, _HEADER_BYTES))
            for name, value in dead_letter.original_headers[:_HEADERS]
        ],
    )


def _bytes(value: bytes | None, limit: int) -> Bytes | None:
    if value is None:
        return None
    shown = base64.b64encode(value[:limit]).decode()
    return Bytes(size=len(value), base64=shown, truncated=len(value) > limit, kind=_kind(value))


def _kind(value: bytes) -> Literal["json", "text", "binary"]:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text"
    return "json"
