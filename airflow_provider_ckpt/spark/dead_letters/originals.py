"""Create dead letters with the original records: the bytes of a record, or for a source of rows the row as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import extreme_times
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.kafka.deserialize import time_text
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SourceError
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters.replay_reader import ReplayReader, is_replay

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.core.wave_messages import BatchTask
    from airflow_provider_ckpt.spark.record_positions import RecordPositions

MESSAGE = "__message"
"""Column of type string in a table of rejected records: the message of the record's error."""


def dead_letter(
    reader: Reader, task: BatchTask, position: int, record: Mapping[str, Any] | None, error: ErrorInfo, *, raw: bool
) -> DeadLetter:
    """Create the dead letter of one record.

    :param reader: reader of the batch's source, which knows the record's origin
    :param task: the batch
    :param position: source position of the record
    :param record: values of the source's columns; None if the source no longer contains the record
    :param error: reason why the record is not delivered
    :param raw: whether the source yields bytes (``value``, and possibly ``key``, ``headers`` and ``timestamp``) rather
        than columns
    """
    if isinstance(reader, ReplayReader) and is_replay(task):
        return reader.with_error(task, position, error)
    headers = dict(reader.origin(task, position))
    if record is None:
        return DeadLetter(position, None, None, error, {**headers, "original": "no longer in the source"})
    if raw:
        if record.get("timestamp") is not None:
            headers["timestamp"] = time_text(_to_text(record["timestamp"]))
        own = tuple((header["key"], header["value"]) for header in record.get("headers") or ())
        return DeadLetter(position, record.get("key"), record["value"], error, headers, own)
    return DeadLetter(position, None, row_json(record), error, headers)


def from_rejected(
    reader: Reader, task: BatchTask, rejected: pa.Table, traces: Mapping[str, str], *, raw: bool
) -> list[DeadLetter]:
    """Create the dead letters of the records that the transform rejected.

    :param reader: reader of the batch's source
    :param task: the batch
    :param rejected: position, verdict, message and original columns of each record
    :param traces: Spark's error texts for the records that have one, by position as text
    :param raw: whether the source yields bytes (``value``, and possibly ``key``, ``headers`` and ``timestamp``) rather
        than columns
    """
    found = []
    for batch in rejected.to_batches():
        records = unpack_originals(batch)
        verdicts, messages = (batch.column(name).to_pylist() for name in (c.VERDICT, MESSAGE))
        for (position, record), verdict, message in zip(_records(records), verdicts, messages, strict=True):
            error = ErrorInfo(ErrorType(verdict), message or "", trace=traces.get(str(position)))
            found.append(dead_letter(reader, task, position, record, error, raw=raw))
    return found


def unpack_originals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Unpack the struct column :data:`~.columns.ORIGINAL` of an Arrow batch.

    :param batch: records, with their positions and the column ``__original``
    :return: Arrow batch of the positions, followed by one column for each column of the source
    """
    import pyarrow as pa

    original = batch.column(c.ORIGINAL)
    names = [field.name for field in original.type]
    return pa.RecordBatch.from_arrays([batch.column(POSITION), *original.flatten()], [POSITION, *names])


def restore_values(reader: Reader, task: BatchTask, rejected: pa.Table) -> pa.Table:
    """Read again from the source the ``value`` bytes that rejected records lack, and return the records with them.

    A reader omits the bytes of a record whose JSON it has decoded itself.

    :param reader: reader of the batch's source
    :param task: the batch
    :param rejected: the rejected records: position, verdict, message and original columns
    :raises SourceError: if the source no longer contains one of these records; the batch is then attempted again
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    original = pa.concat_arrays(rejected.column(c.ORIGINAL).chunks)
    at = original.type.get_field_index("value")
    parts = original.flatten()
    positions = pa.concat_arrays(rejected.column(POSITION).chunks)
    wanted = positions.filter(parts[at].is_null())
    if not len(wanted):
        return rejected
    values: dict[int, bytes | None] = {}
    for batch in reader.read(task):
        found = batch.filter(pc.is_in(batch.column(0), value_set=wanted))
        values.update(zip(found.column(0).to_pylist(), found.column("value").to_pylist(), strict=True))
    missing = [position for position in wanted.to_pylist() if position not in values]
    if missing:
        raise SourceError(
            f"position {missing[0]} was read, and the source no longer shows it; nothing of the batch was sent.",
            batch=str(task.key),
            position=missing[0],
            recoverable=True,
            hint="The batch is read again.",
        )
    read = [values.get(position) for position in positions.to_pylist()]
    parts[at] = pc.coalesce(parts[at], pa.array(read, parts[at].type))
    struct = pa.StructArray.from_arrays(parts, [field.name for field in original.type])
    return rejected.set_column(rejected.schema.get_field_index(c.ORIGINAL), c.ORIGINAL, struct)


def from_batch(reader: Reader, task: BatchTask, error: ErrorInfo, *, raw: bool) -> list[DeadLetter]:
    """Read a batch again and create a dead letter for each of its records.

    :param reader: reader of the batch's source
    :param task: the batch
    :param error: reason why the whole batch is not delivered, which each dead letter gets as its error
    :param raw: whether the source yields bytes (``value``, and possibly ``key``, ``headers`` and ``timestamp``) rather
        than columns
    """
    if isinstance(reader, ReplayReader) and is_replay(task):
        return reader.all_with_error(task, error)
    return [
        dead_letter(reader, task, position, record, error, raw=raw)
        for batch in reader.read(task)
        for position, record in _records(batch)
    ]


def unreadable_dead_letters(reader: Reader, task: BatchTask) -> list[DeadLetter]:
    """Return those dead letters of a replay's batch that cannot be converted back to records.

    The error of each dead letter says why it cannot be converted.

    :param reader: reader of the batch; unless this is a :class:`ReplayReader`, the result is empty
    :param task: the replay's batch
    """
    return reader.unreadable_dead_letters(task) if isinstance(reader, ReplayReader) else []


def from_source(
    reader: Reader, task: BatchTask, record_positions: RecordPositions, errors: Mapping[int, ErrorInfo], *, raw: bool
) -> list[DeadLetter]:
    """Read a batch again and create a dead letter for each record that has an error.

    If the source no longer contains any record at a position, the dead letters of that position have no bytes, but the
    header ``original``.

    :param reader: reader of the batch's source
    :param task: the batch
    :param record_positions: positions of the batch's records as they were first read
    :param errors: the errors, by record number (the record's index in the batch, from 0)
    :param raw: whether the source yields bytes (``value``, and possibly ``key``, ``headers`` and ``timestamp``) rather
        than columns
    :raises SourceError: if a position now has more or fewer records than before, so that it is unknown which of them
        have the errors; the batch is then attempted again
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = {record_positions.position_and_index(number): error for number, error in errors.items()}
    positions = pa.array(sorted({position for position, _ in wanted}), pa.int64())
    seen: Counter[int] = Counter()
    dead_letters = []
    for batch in reader.read(task):
        for position, record in _records(batch.filter(pc.is_in(batch.column(0), value_set=positions))):
            error = wanted.get((position, seen[position]))
            seen[position] += 1
            if error is not None:
                dead_letters.append(dead_letter(reader, task, position, record, error, raw=raw))
    for position, records in seen.items():
        if records != record_positions.count_at(position):
            raise SourceError(
                f"{record_positions.count_at(position)} records were read at position {position}, and the source now "
                f"shows {records} there; nothing of the batch was sent.",
                batch=str(task.key),
                position=position,
                recoverable=True,
                hint="The batch is read again.",
            )
    missing = [(position, error) for (position, _), error in wanted.items() if position not in seen]
    return dead_letters + [dead_letter(reader, task, position, None, error, raw=raw) for position, error in missing]


def from_rows(
    reader: Reader,
    task: BatchTask,
    record_positions: RecordPositions,
    rows: pa.Table,
    errors: Mapping[int, ErrorInfo],
    *,
    raw: bool,
) -> list[DeadLetter]:
    """Create dead letters from rows that the lane still holds in memory, without reading the source again.

    :param reader: reader of the batch's source, which knows the records' origin
    :param task: the batch
    :param record_positions: positions of the batch's records
    :param rows: the batch's rows, with their record numbers
    :param errors: the errors, by record number; each makes a dead letter
    :param raw: whether the source yields bytes (``value``, and possibly ``key``, ``headers`` and ``timestamp``) rather
        than columns
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = rows.filter(pc.is_in(rows.column(ROW_NUMBER), value_set=pa.array(list(errors), pa.int64())))
    return [
        dead_letter(reader, task, record_positions.position(number), record, errors[number], raw=raw)
        for batch in chosen.to_batches()
        for number, record in _records(batch)
    ]


def row_json(row: Mapping[str, Any]) -> bytes:
    """Return a row as one JSON object without loss, for a dead letter.

    A value for which JSON has no type becomes text as PostgreSQL writes it. The bytes of text that is not valid UTF-8
    are kept.

    :param row: values by column name
    """
    return json.dumps(row, default=_to_text, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _records(batch: pa.RecordBatch) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield each row of an Arrow batch as a pair: the value of its first column, and a dict of its other columns."""
    first = batch.schema.names[0]
    try:
        records = batch.to_pylist()
    except (OverflowError, ValueError):
        columns = zip(*(_python_values(column) for column in batch.columns), strict=True)
        records = [dict(zip(batch.schema.names, values, strict=True)) for values in columns]
    for record in records:
        yield record.pop(first), record


def _python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects, or as text if Python has no equivalent.

    Text is used for infinite dates and years after 9999. Text that is not valid UTF-8 is decoded with surrogate
    escapes.
    """
    import pyarrow as pa

    if pa.types.is_string(column.type):
        found = column.view(pa.binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in found]
    return extreme_times.to_python(column, extreme_times.to_text)


def _to_text(value: object) -> str:
    """Return the text of a value for which JSON has no type, such as ISO 8601 for a time."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)
