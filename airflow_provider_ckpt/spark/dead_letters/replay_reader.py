"""Read the records of replays from the dead letters that the sink stores.

The task of a replay's batch names its dead letters. All other batches are read from the source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors import extreme_times
from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.dead_letter_lookup import read_dead_letters
from airflow_provider_ckpt.connectors.kafka.deserialize import parse_time_text
from airflow_provider_ckpt.connectors.sink_protocol import Sink
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader, RecordShape, SparkFedReader
from airflow_provider_ckpt.core.dead_letter_index import DeadLetters
from airflow_provider_ckpt.core.dead_letter_replay import PositionedDeadLetters
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.core.wave import BatchTask

DETAIL = "dead_letters"
"""Key in a task's detail: selections of dead letters, each with the position in the batch of its first one."""

NEWEST_FIRST = "newest_first"

NO_ORIGINAL = "original"
"""Suffix of the header that marks a dead letter whose record was no longer in the source."""

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
"""Spark SQL type of a message's headers."""

_ROWS_PER_YIELD = 10_000


def replay_detail(positioned: Sequence[PositionedDeadLetters], *, newest_first: bool) -> dict[str, Any]:
    """Return the task's detail for a batch of a replay."""
    return {DETAIL: [[*item.dead_letters.to_json(), item.start] for item in positioned], NEWEST_FIRST: newest_first}


def is_replay(task: BatchTask) -> bool:
    """Return whether a batch replays dead letters."""
    return DETAIL in task.detail


class ReplayReader:
    """Reader for batches of the source and of replays; see :class:`~.source_protocol.Reader`.

    :param reader: the source's reader
    :param sink: opens the sink that stores the dead letters
    :param shape: columns that the source's reader yields
    """

    def __init__(self, reader: Reader, sink: Callable[[], Sink], shape: RecordShape) -> None:
        self._reader = reader
        self._open = sink
        self._sink: Sink | None = None
        self._shape = shape
        self._current_task: BatchTask | None = None
        self._dead_letters: dict[int, DeadLetter] = {}

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the task's records; dead letters that cannot be converted back to a record are left out."""
        return self._records(task) if is_replay(task) else self._reader.read(task)

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Pass a batch's records to the reader of a source that Spark reads. A replay needs none: its records are in
        the sink.
        """
        if not is_replay(task):
            cast("SparkFedReader", self._reader).accept(task, records)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return headers that say where a record came from; for a replay, those of its dead letter."""
        return self._dead_letters_of(task)[position].headers if is_replay(task) else self._reader.origin(task, position)

    def close(self) -> None:
        """Close the connections to source and sink."""
        self._reader.close()
        if self._sink is not None:
            self._sink.close()

    def with_error(self, task: BatchTask, position: int, error: ErrorInfo) -> DeadLetter:
        """Return a dead letter that could not be delivered by the replay: its bytes unchanged, with the new error."""
        return replace(self._dead_letters_of(task)[position], position=position, error=error)

    def all_with_error(self, task: BatchTask, error: ErrorInfo) -> list[DeadLetter]:
        """Return every dead letter of the batch with one error."""
        return [self.with_error(task, position, error) for position in sorted(self._dead_letters_of(task))]

    def unreadable_dead_letters(self, task: BatchTask) -> list[DeadLetter]:
        """Return the dead letters that :meth:`read` left out, each with the reason as its error."""
        _, bad = self._separate_bad_records(task)
        return [
            self.with_error(
                task, position, ErrorInfo(ErrorType.SERIALIZATION, f"cannot be converted back to a record: {reason}")
            )
            for position, reason in bad.items()
        ]

    def _records(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        convertible, _ = self._separate_bad_records(task)
        names = [POSITION, *(name for name, _ in self._shape.columns)]
        for at in range(0, len(convertible), _ROWS_PER_YIELD):
            portion = convertible[at : at + _ROWS_PER_YIELD]
            columns = [pa.array([position for position, _ in portion], pa.int64())]
            for number, (_, kind) in enumerate(self._shape.columns):
                columns.append(_arrow_array([record[number] for _, record in portion], to_arrow(kind)))
            yield pa.RecordBatch.from_arrays(columns, names)

    def _separate_bad_records(self, task: BatchTask) -> tuple[list[tuple[int, list[Any]]], dict[int, str]]:
        """Return the convertible records with their positions, and by position why the other dead letters are not
        convertible.
        """
        convertible: list[tuple[int, list[Any]]] = []
        bad: dict[int, str] = {}
        for position, dead_letter in sorted(self._dead_letters_of(task).items()):
            try:
                convertible.append((position, self._record(dead_letter)))
            except (ValueError, ArithmeticError) as error:  # Arrow's errors of values are ValueErrors
                bad[position] = str(error).splitlines()[0]
        return convertible, bad

    def _record(self, dead_letter: DeadLetter) -> list[Any]:
        """Return the values of the source's columns from one dead letter.

        :raises ValueError: if its bytes do not contain them
        """
        if any(name.endswith(NO_ORIGINAL) for name in dead_letter.headers):
            raise ValueError("the source no longer had the record, so there are no bytes")
        if self._shape.raw:
            parts = {
                "key": dead_letter.key,
                "value": dead_letter.value,
                "headers": _headers_column(dead_letter),
                "timestamp": _record_time(dead_letter),
            }
            return [parts[name] for name, _ in self._shape.columns]
        if dead_letter.value is None:
            raise ValueError("it has no bytes")
        row = json.loads(dead_letter.value.decode("utf-8", "surrogateescape"))
        if not isinstance(row, dict):
            raise ValueError("its bytes are not a row")
        kinds = [(name, to_arrow(kind)) for name, kind in self._shape.columns]
        values = [_arrow_value(row.get(name), kind) for name, kind in kinds]
        for value, (_, kind) in zip(values, kinds, strict=True):
            _arrow_array([value], kind)
        return values

    def _dead_letters_of(self, task: BatchTask) -> dict[int, DeadLetter]:
        """Return the task's dead letters by position; they are read once per attempt."""
        if self._current_task is None or (self._current_task.key, self._current_task.attempt) != (
            task.key,
            task.attempt,
        ):
            self._dead_letters = dict(self._read_dead_letters(task))
            self._current_task = task
        return self._dead_letters

    def _read_dead_letters(self, task: BatchTask) -> Iterator[tuple[int, DeadLetter]]:
        self._sink = self._sink or self._open()
        positioned = [PositionedDeadLetters(DeadLetters.from_json(item[:-1]), item[-1]) for item in task.detail[DETAIL]]
        starts = (item.start for item in positioned)
        for start, (_, found) in zip(
            starts, read_dead_letters(self._sink, (item.dead_letters for item in positioned)), strict=True
        ):
            ordered = reversed(found) if task.detail[NEWEST_FIRST] else iter(found)
            for position, dead_letter in enumerate(ordered, start=start):
                yield position, dead_letter.dead_letter


def _headers_column(dead_letter: DeadLetter) -> list[dict[str, Any]] | None:
    """Return the record's own headers in the form of a message's headers column; None if it has none."""
    return [{"key": name, "value": value} for name, value in dead_letter.original_headers] or None


def _record_time(dead_letter: DeadLetter) -> str | None:
    """Return the record's own time from its dead letter's headers, or None."""
    return next(
        (parse_time_text(text) for name, text in dead_letter.headers.items() if name.endswith("timestamp")), None
    )


def _arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of a row's JSON for an Arrow array of this type; the inverse of :func:`~.originals.row_json`."""
    import pyarrow as pa

    is_ = pa.types
    if value is None:
        return None
    if is_.is_binary(kind):
        return bytes.fromhex(str(value).removeprefix("\\x"))
    if is_.is_decimal(kind):
        return Decimal(str(value))
    if is_.is_list(kind) and isinstance(value, list):
        return [_nested_value(item, kind.value_type) for item in value]
    if is_.is_map(kind) and isinstance(value, list) and all(isinstance(pair, list) for pair in value):
        return [(_nested_value(key, kind.key_type), _nested_value(item, kind.item_type)) for key, item in value]
    if is_.is_struct(kind) and isinstance(value, dict):
        return {field.name: _nested_value(value.get(field.name), field.type) for field in kind}
    return value


def _nested_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value nested in another one: Arrow does not parse text for nested dates and timestamps."""
    import pyarrow as pa

    if value is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return extreme_times.parse([value], kind)[0].value
    return _arrow_value(value, kind)


def _arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array.

    :raises ValueError: if a value does not fit the type
    """
    import pyarrow as pa

    try:
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return extreme_times.parse(values, kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
