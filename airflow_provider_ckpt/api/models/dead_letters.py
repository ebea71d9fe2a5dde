"""Models of dead letters: groups, entries of the index, and records with their bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Failure, Moment, Position, Span

DeadLetterStateName = Literal["parked", "replaying", "replayed", "parked_again", "discarded"]


class DeadLetterFilter(ApiModel):
    """Selection of dead letters; an empty field restricts nothing.

    :param types: error types
    :param batches: batches
    :param states: states; by default those that are neither replayed nor discarded
    :param since: only dead letters of batches whose receipt was claimed then or later
    :param until: only dead letters of batches whose receipt was claimed before
    """

    types: list[str] = Field(default_factory=list, max_length=50)
    batches: list[BatchName] = Field(default_factory=list, max_length=1000)
    states: list[DeadLetterStateName] = Field(default_factory=list)
    since: Moment | None = None
    until: Moment | None = None


class DeadLetterGroup(ApiModel):
    """Dead letters of one error type, state and hour.

    :param hour: begin of the hour
    :param error_type: the error type
    :param state: the state
    :param records: number of dead letters
    :param batches: number of batches that they are from
    :param first_at: time of the oldest
    :param last_at: time of the newest
    """

    hour: Moment
    error_type: str
    state: DeadLetterStateName
    records: int
    batches: int
    first_at: Moment
    last_at: Moment


class DeadLetterGroups(ApiModel):
    """Groups of dead letters, newest hour first, at most 1000; ``left_out`` says whether there are more.

    :param by_state: number of dead letters by state, of all groups
    """

    items: list[DeadLetterGroup]
    left_out: bool
    by_state: dict[str, int]


class DeadLetterEntry(Span):
    """Entry of the index: consecutive dead letters of one batch, error type and state.

    :param batch: the batch
    :param partition: its partition
    :param error_type: the error type
    :param first: number of the first among the batch's dead letters of this type, from 0
    :param records: number of dead letters
    :param state: the state
    :param at: when the batch's receipt was claimed
    :param replays: number of earlier replays in which these records failed again
    :param replay: side partition that replays or has replayed them; None without one
    :param read_again: generation that has read the records again, so that these dead letters are obsolete; None if none
    """

    batch: BatchName
    partition: str
    error_type: str
    first: int
    records: int
    state: DeadLetterStateName
    at: Moment
    replays: int
    replay: str | None
    read_again: int | None


class DeadLetterPage(ApiModel):
    """Page of entries of the index, ordered by batch; ``next`` is the next page's cursor, None on the last one."""

    items: list[DeadLetterEntry]
    next: str | None


class RecordsRequest(ApiModel):
    """Request for dead letters with their bytes.

    :param filter: which dead letters
    :param query: only those that contain this text in key, value, a header or the error
    :param cursor: cursor of the page; None for the first
    :param limit: maximum number of records
    :param max_bytes: maximum number of bytes of each key and value
    """

    filter: DeadLetterFilter = DeadLetterFilter()
    query: str | None = Field(default=None, min_length=1, max_length=1000)
    cursor: str | None = Field(default=None, max_length=2000)
    limit: int = Field(default=20, ge=1, le=100)
    max_bytes: int = Field(default=16_384, ge=1, le=262_144)


class ExportRequest(ApiModel):
    """Request for dead letters as a file.

    :param filter: which dead letters
    :param query: only those that contain this text in key, value, a header or the error
    """

    filter: DeadLetterFilter = DeadLetterFilter()
    query: str | None = Field(default=None, min_length=1, max_length=1000)


class Bytes(ApiModel):
    """Bytes of a record, possibly only their beginning.

    :param size: number of all bytes
    :param base64: the bytes in base64, at most ``max_bytes`` of them
    :param truncated: whether bytes were left out at the end
    :param kind: ``json`` if all bytes are JSON, ``text`` if they are UTF-8, else ``binary``
    """

    size: int
    base64: str
    truncated: bool
    kind: Literal["json", "text", "binary"]


class Header(ApiModel):
    """Header of a record; ``value`` is None if it has none."""

    name: str
    value: Bytes | None


class DeadLetterRecord(ApiModel):
    """Dead letter with its bytes.

    :param batch: its batch
    :param number: its number among the batch's dead letters of its error type, from 0
    :param position: position of the record in the source
    :param state: its state
    :param at: when it was written
    :param error: its error
    :param key: bytes of the key; None without one
    :param value: bytes of the value; None without one
    :param origin: where the record comes from, such as its topic or file
    :param headers: the record's own headers
    """

    batch: BatchName
    number: int
    position: Position
    state: DeadLetterStateName
    at: Moment
    error: Failure
    key: Bytes | None
    value: Bytes | None
    origin: dict[str, str]
    headers: list[Header]


class RecordPage(ApiModel):
    """Page of dead letters with their bytes.

    :param items: the records
    :param next: cursor of the next page; None on the last one
    :param searched: number of dead letters that were read to find these; at most 10,000, so a page may be empty while
        ``next`` is not None
    """

    items: list[DeadLetterRecord]
    next: str | None
    searched: int
