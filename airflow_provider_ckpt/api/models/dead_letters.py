"""Models of dead letters: groups, entries of the dead letter index, and single dead letters with their bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Failure, Moment, Position, Span

DeadLetterStateName = Literal["parked", "replaying", "replayed", "parked_again", "discarded"]


class DeadLetterFilter(ApiModel):
    """Selection of dead letters; a field that is empty or left out does not restrict it.

    :param types: only dead letters with one of these error types
    :param batches: only dead letters of the batches of these names
    :param states: only dead letters in one of these states; if empty, those that are neither replayed nor discarded
    :param since: only dead letters of batches whose receipt was claimed at this time or later
    :param until: only dead letters of batches whose receipt was claimed before this time
    """

    types: list[str] = Field(default_factory=list, max_length=50)
    batches: list[BatchName] = Field(default_factory=list, max_length=1000)
    states: list[DeadLetterStateName] = Field(default_factory=list)
    since: Moment | None = None
    until: Moment | None = None


class DeadLetterGroup(ApiModel):
    """The dead letters of one hour that have the same error type and the same state, as a number.

    A dead letter's time is the time at which the receipt of its batch was claimed.

    :param hour: start of the hour, UTC
    :param error_type: the error type
    :param state: the state
    :param records: number of dead letters
    :param batches: number of batches to which the dead letters belong
    :param first_at: time of the oldest dead letter
    :param last_at: time of the newest dead letter
    """

    hour: Moment
    error_type: str
    state: DeadLetterStateName
    records: int
    batches: int
    first_at: Moment
    last_at: Moment


class DeadLetterGroups(ApiModel):
    """Numbers of dead letters by hour, error type and state.

    :param items: the groups, newest hour first; at most 1,000
    :param left_out: whether there are further groups
    :param by_state: number of dead letters of all groups by state
    """

    items: list[DeadLetterGroup]
    left_out: bool
    by_state: dict[str, int]


class DeadLetterEntry(Span):
    """An entry of the dead letter index: consecutive dead letters of one batch, one error type and one state.

    The dead letters of a batch and error type are numbered from 0. Their range of positions may contain other records,
    too.

    :param batch: name of the batch
    :param partition: id of the partition
    :param error_type: error type of the dead letters
    :param first: number of the first dead letter of this entry
    :param records: number of dead letters
    :param state: state of the dead letters
    :param at: when the receipt of the batch was claimed
    :param replays: number of earlier replays in which the same records failed again
    :param replay: id of the side partition that replays or has replayed the dead letters; None if there is none
    :param read_again: number of the newest generation that has read the records again, so that these dead letters are
        obsolete; None if no generation has
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
    """Page of the dead letter index.

    :param items: the entries, ordered by batch, error type and number
    :param next: cursor of the next page; None on the last page
    """

    items: list[DeadLetterEntry]
    next: str | None


class RecordsRequest(ApiModel):
    """Request for a page of dead letters with their bytes.

    :param filter: selection of dead letters
    :param query: only dead letters that contain this text in the key, the value, a header or the error; None for all
    :param cursor: value of ``next`` in the previous page; None for the first page
    :param limit: maximum number of dead letters
    :param max_bytes: maximum number of bytes of each key and of each value; further bytes are left out
    """

    filter: DeadLetterFilter = DeadLetterFilter()
    query: str | None = Field(default=None, min_length=1, max_length=1000)
    cursor: str | None = Field(default=None, max_length=2000)
    limit: int = Field(default=20, ge=1, le=100)
    max_bytes: int = Field(default=16_384, ge=1, le=262_144)


class ExportRequest(ApiModel):
    """Request for a file of dead letters with their bytes.

    :param filter: selection of dead letters
    :param query: only dead letters that contain this text in the key, the value, a header or the error; None for all
    """

    filter: DeadLetterFilter = DeadLetterFilter()
    query: str | None = Field(default=None, min_length=1, max_length=1000)


class Bytes(ApiModel):
    """Bytes of a key, a value or a header of a record; only the first bytes if there are many.

    :param size: number of all bytes, also of those that were left out
    :param base64: the first bytes in base64: of a key or value at most ``max_bytes`` of the request, of a header 4,096
    :param truncated: whether bytes were left out at the end
    :param kind: ``json`` if all bytes together are a JSON text, ``text`` if they are UTF-8, else ``binary``
    """

    size: int
    base64: str
    truncated: bool
    kind: Literal["json", "text", "binary"]


class Header(ApiModel):
    """A header of a record.

    :param name: name of the header
    :param value: value of the header; None if it has none
    """

    name: str
    value: Bytes | None


class DeadLetterRecord(ApiModel):
    """A dead letter with the bytes of its record.

    :param batch: name of the batch
    :param number: number of the dead letter, from 0, among the dead letters of its batch with its error type
    :param position: position of the record in the source partition
    :param state: state of the dead letter
    :param at: when the dead letter was written
    :param error: the error because of which the record was not delivered
    :param key: bytes of the record's key; None without one
    :param value: bytes of the record's value; None without one
    :param origin: origin of the record as names and values, such as its topic or its file
    :param headers: headers of the record, at most 100
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

    :param items: the dead letters of this page; may be empty although there is a next page
    :param next: cursor of the next page; None on the last page
    :param searched: number of dead letters that were read to find those of this page, at most 10,000
    """

    items: list[DeadLetterRecord]
    next: str | None
    searched: int
