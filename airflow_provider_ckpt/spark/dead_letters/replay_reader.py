"""Read the batches of a replay: its records are dead letters, which are read from the sink that stores them.

All other batches are read from the source. The :class:`BatchTask` of a replay's batch names its dead letters.
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
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.replay_content import PositionedDeadLetters

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.core.wave_messages import BatchTask

DETAIL = "dead_letters"
"""Key in :attr:`BatchTask.detail` of a replay's batch. The value is a list of selections. Each names consecutive dead
letters of one earlier batch, and the position that the first of them has in the replay, from 0.
"""

NEWEST_FIRST = "newest_first"
"""Key in :attr:`BatchTask.detail` of a replay's batch. The value is true if each selection counts its dead letters from
the newest to the oldest, else false.
"""

NO_ORIGINAL = "original"
"""Name, without prefix, of the header of a dead letter without bytes, whose record the source no longer contained."""

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
"""Spark SQL type of the ``headers`` column, the headers of a message."""

_ROWS_PER_YIELD = 10_000


def replay_detail(positioned: Sequence[PositionedDeadLetters], *, newest_first: bool) -> dict[str, Any]:
    """Return the :attr:`BatchTask.detail` of a replay's batch, which tells :class:`ReplayReader` what to read.

    :param positioned: selections of the dead letters to send, each with the position of its first one in the replay
    :param newest_first: whether each selection counts its dead letters from the newest to the oldest
    """
    return {DETAIL: [[*item.dead_letters.to_json(), item.start] for item in positioned], NEWEST_FIRST: newest_first}


def is_replay(task: BatchTask) -> bool:
    """Return whether a batch replays dead letters."""
    return DETAIL in task.detail


class ReplayReader:
    """Reader that reads a replay's batches from the dead letters in the sink, and all other batches from the source.

    It implements :class:`~.source_protocol.Reader`.

    :param reader: the source's reader
    :param sink: function that opens the sink in which the dead letters are stored; called for the first replay
    :param shape: names and types of the columns that the source's reader yields
    """

    def __init__(self, reader: Reader, sink: Callable[[], Sink], shape: RecordShape) -> None:
        self._reader = reader
        self._open = sink
        self._sink: Sink | None = None
        self._shape = shape
        self._current_task: BatchTask | None = None
        self._dead_letters: dict[int, DeadLetter] = {}

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch; dead letters that cannot be converted back to a record are left out.

        :param task: the batch, a replay or another batch
        """
        return self._records(task) if is_replay(task) else self._reader.read(task)

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Pass the records that Spark has read for a batch to the source's reader; a replay's records are ignored.

        :param task: the batch
        :param records: the batch's records, as Spark read them
        """
        if not is_replay(task):
            cast("SparkFedReader", self._reader).accept(task, records)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead-letter headers that describe a record's origin; in a replay, the headers of its dead letter.

        :param task: the batch
        :param position: position of the record
        """
        return self._dead_letters_of(task)[position].headers if is_replay(task) else self._reader.origin(task, position)

    def close(self) -> None:
        """Close the connections to source and sink."""
        self._reader.close()
        if self._sink is not None:
            self._sink.close()

    def with_error(self, task: BatchTask, position: int, error: ErrorInfo) -> DeadLetter:
        """Return a dead letter of a replay's batch again: its bytes are unchanged, its error is that of the replay.

        :param task: the replay's batch
        :param position: position of the dead letter in the replay
        :param error: the error because of which the replay could not deliver the record
        """
        return replace(self._dead_letters_of(task)[position], position=position, error=error)

    def all_with_error(self, task: BatchTask, error: ErrorInfo) -> list[DeadLetter]:
        """Return all dead letters of a replay's batch that is rejected, each with the error that caused the rejection.

        :param task: the replay's batch
        :param error: the error
        """
        return [self.with_error(task, position, error) for position in sorted(self._dead_letters_of(task))]

    def unreadable_dead_letters(self, task: BatchTask) -> list[DeadLetter]:
        """Return the dead letters of a replay's batch that :meth:`read` left out, each with the reason as its error."""
        _, bad = self._separate_bad_records(task)
        return [
            self.with_error(
                task, position, ErrorInfo(ErrorType.SERIALIZATION, f"cannot be converted back to a record: {reason}")
            )
            for position, reason in bad.items()
        ]

    def _records(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a replay's batch, converted from its dead letters, up to 10,000 in each Arrow batch."""
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
        """Convert the dead letters of a replay's batch back to records; separate those that cannot be converted.

        :param task: the replay's batch
        :return: a list of records, each a pair of position and column values; and for each dead letter that cannot be
            converted its position and the reason
        """
        convertible: list[tuple[int, list[Any]]] = []
        bad: dict[int, str] = {}
        for position, dead_letter in sorted(self._dead_letters_of(task).items()):
            try:
                convertible.append((position, self._record(dead_letter)))
            except (ValueError, ArithmeticError) as error:  # Arrow's errors for invalid values are ValueErrors
                bad[position] = str(error).splitlines()[0]
        return convertible, bad

    def _record(self, dead_letter: DeadLetter) -> list[Any]:
        """Return the values of the source's columns, converted from the bytes of a dead letter.

        :raises ValueError: if the bytes do not contain these values
        """
        if any(name.endswith(NO_ORIGINAL) for name in dead_letter.headers):
            raise ValueError(
                "it has no bytes, because the record was no longer in the source when it was dead-lettered"
            )
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
        """Return the dead letters of a replay's batch, by position in the replay; the sink is read once per attempt."""
        if self._current_task is None or (self._current_task.key, self._current_task.attempt) != (
            task.key,
            task.attempt,
        ):
            self._dead_letters = dict(self._read_dead_letters(task))
            self._current_task = task
        return self._dead_letters

    def _read_dead_letters(self, task: BatchTask) -> Iterator[tuple[int, DeadLetter]]:
        """Read the dead letters of a replay's batch from the sink, and yield each with its position in the replay."""
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
    """Return the headers of the original message as a value of the source's ``headers`` column; None without any."""
    return [{"key": name, "value": value} for name, value in dead_letter.original_headers] or None


def _record_time(dead_letter: DeadLetter) -> str | None:
    """Return the time of a dead letter's original message, from the header ``timestamp``; None without this header."""
    return next(
        (parse_time_text(text) for name, text in dead_letter.headers.items() if name.endswith("timestamp")), None
    )


def _arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of :func:`~.originals.row_json` to the Python object that Arrow expects for a type.

    :param value: the value as ``json.loads`` returns it
    :param kind: Arrow type of the column
    """
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
    """Convert a JSON value inside a list, map or struct, where Arrow does not parse the text of dates and timestamps.

    :param value: the value as ``json.loads`` returns it
    :param kind: Arrow type of the value
    """
    import pyarrow as pa

    if value is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return extreme_times.parse([value], kind)[0].value
    return _arrow_value(value, kind)


def _arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of a type.

    :param values: values as :func:`_arrow_value` returns them
    :param kind: Arrow type of the array
    :raises ValueError: if a value cannot be converted to that type
    """
    import pyarrow as pa

    try:
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return extreme_times.parse(values, kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
