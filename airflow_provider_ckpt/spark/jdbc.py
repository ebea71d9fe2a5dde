"""Read a wave of a JDBC source with Spark itself: one query per batch, in lane order.

Each batch is one partition of Spark's read and is sorted by position. The partitions of a lane are put together without
a shuffle, which keeps their order. The next step adds its batch to each row and a marker row to each batch, as the
lanes of other sources do while they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc import query
from airflow_provider_ckpt.connectors.jdbc.client import driver_properties, require_connection
from airflow_provider_ckpt.connectors.jdbc.column_types import MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.jdbc.failures import error_info, missing_class, sql_error
from airflow_provider_ckpt.connectors.jdbc.query import ReadQuery
from airflow_provider_ckpt.connectors.jdbc.url_check import without_secrets
from airflow_provider_ckpt.connectors.source_protocol import POSITION, SparkFedReader
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, SourceError
from airflow_provider_ckpt.core.wave import BatchTask, Wave
from airflow_provider_ckpt.spark.dead_letters.replay_reader import is_replay
from airflow_provider_ckpt.spark.lane.read import read_batches
from airflow_provider_ckpt.spark.sql import first_line, literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.spark.job import Job

_SLOT = "__slot"
"""int: the partition of Spark's read that a row is from; lane ``n`` has ``slots`` partitions, from ``n * slots`` on."""

_UNCONVERTIBLE = "__wrong"
"""string: column name and value, if the row has a value that Spark cannot convert to a date or time; else null."""

_FETCH_SIZE = "5000"
"""Rows per fetch of the driver; without a limit some drivers hold a whole table in memory."""

_READ_INSTRUCTIONS = frozenset({Instruction.DELIVER, Instruction.REJECT})


def read_frame(spark: SparkSession, job: Job, wave: Wave, schema: StructType) -> DataFrame | None:
    """Return a data frame of a wave's records with their control columns; None if no batch of the wave needs a query.

    :param spark: the session
    :param job: the run
    :param wave: the batches to read, by lane
    :param schema: the control columns and the source's columns
    :raises ConfigError: if Spark or the driver cannot read the table
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    recipes = [[_recipe(task) for task in lane] for lane in wave.lanes]
    read_query = next((found for lane in recipes for found in lane if found), None)
    if read_query is None:
        return None
    slots = max(len(lane) for lane in recipes)
    conditions = [
        found.where if found else query.NO_ROWS for lane in recipes for found in [*lane, *[None] * (slots - len(lane))]
    ]
    connection = _connection(job)
    assert connection.host is not None
    try:
        read = spark.read.jdbc(
            connection.host, read_query.query, predicates=conditions, properties=_properties(connection, read_query)
        )
        rows = read.selectExpr(
            f"spark_partition_id() AS {_SLOT}",
            f"{_position_sql(read_query.kind)} AS {POSITION}",
            f"{_unconvertible_sql(read_query)} AS {_UNCONVERTIBLE}",
            *(_value_sql(at, spark_type, read_as) for at, (_, spark_type, read_as) in enumerate(read_query.columns)),
        )
        rows.schema  # noqa: B018  # analysis happens here, on a Connect session too
    except (PySparkException, Py4JJavaError) as error:
        if sql_error(error) or missing_class(error):
            raise
        raise ConfigError(
            f"Spark cannot read {read_query.table}: {without_secrets(connection, first_line(error))}",
            pipeline=job.context.pipeline,
            hint="Leave the column out by source.columns, or read a view that casts it.",
        ) from error
    from pyspark.sql.pandas.types import to_arrow_schema

    lanes = rows.sortWithinPartitions(POSITION).coalesce(len(wave.lanes))
    return lanes.mapInArrow(partial(_read_lane, job, wave, slots, to_arrow_schema(schema, timezone="UTC")), schema)


def driver_error(job: Job, error: Exception) -> ErrorInfo:
    """Return the JDBC driver's error that made Spark give up a wave.

    :param job: the run
    :param error: the exception that Spark raised
    :raises ConfigError: if Spark does not find the driver's classes
    :raises Exception: ``error`` itself, if the driver did not cause it
    """
    absent = missing_class(error)
    if absent is not None:
        raise ConfigError(
            f"Spark does not find the driver: {absent}.",
            pipeline=job.context.pipeline,
            hint="source.jars must name the driver's jars, and run.conf must not hide them from Spark.",
        ) from None
    found = sql_error(error)
    if found is None:
        raise error
    connection = _connection(job)
    operation = f"reading {job.pipeline.source.table} (connection {connection.id!r})"
    return error_info(found, operation, connection)


def _read_lane(
    job: Job, wave: Wave, slots: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lane that this task runs, with a marker row after each batch (for ``mapInArrow``)."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    lane = context.partitionId()
    stream = SlotStream(batches, lane * slots, slots)

    def reader() -> _LaneReader:
        return _LaneReader(job, wave.lanes[lane], stream)

    yield from read_batches(job, wave, lane, schema, None, reader, _READ_INSTRUCTIONS)


class SlotStream:
    """Stream of a lane's rows, which arrive slot by slot; a slot has the rows of one batch.

    :param batches: rows from Spark
    :param first: the lane's first slot
    :param slots: number of the lane's slots
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], first: int, slots: int) -> None:
        self._batches = batches
        self._first, self._end = first, first + slots
        self._rest: pa.RecordBatch | None = None

    def of(self, slot: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slot of the lane; rows of earlier slots are skipped.

        :param slot: the slot's index in the lane, from 0
        :raises SourceError: if the rows are out of order or of another lane, since some would be lost then
        """
        import numpy as np

        wanted = self._first + slot
        while (batch := self._take()) is not None:
            slots = batch.column(0).to_numpy()
            if slots[0] < self._first or slots[-1] >= self._end or (np.diff(slots) < 0).any():
                raise SourceError("Spark gave a lane the rows of another lane, or its batches in another order.")
            start, end = (int(edge) for edge in np.searchsorted(slots, [wanted, wanted + 1]))
            self._rest = batch.slice(end) if end < batch.num_rows else None  # before yielding: the caller may stop here
            if start < end:
                yield batch.slice(start, end - start)
            if self._rest is not None:
                return

    def _take(self) -> pa.RecordBatch | None:
        """Return the next Arrow batch with rows: the rest of the last one, or one from Spark; None at the end."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        return next((batch for batch in self._batches if batch.num_rows), None)


class _LaneReader:
    """Reader of a lane (:class:`~.source_protocol.Reader`): passes Spark's rows of a batch to the job's reader, and
    yields its records.

    :param tasks: the lane's batches, in the order in which their rows arrive
    :param stream: Spark's rows for the lane
    """

    def __init__(self, job: Job, tasks: Sequence[BatchTask], stream: SlotStream) -> None:
        self._reader = job.reader()
        self._names = [POSITION, *(name for name, _ in job.shape.columns)]
        self._table = job.pipeline.source.table
        self._slots = {task.key: slot for slot, task in enumerate(tasks)}
        self._stream = stream

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch, from Spark's rows."""
        cast("SparkFedReader", self._reader).accept(task, self._records(task))
        return self._reader.read(task)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return dead-letter headers that say where a record came from."""
        return self._reader.origin(task, position)

    def close(self) -> None:
        """Close the job's reader."""
        self._reader.close()

    def _records(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield Spark's rows of a batch as position and source columns, after checking them."""
        import pyarrow as pa

        for rows in self._stream.of(self._slots[task.key]):
            self._check(task, rows)
            yield pa.RecordBatch.from_arrays([rows.column(POSITION), *rows.columns[3:]], self._names)

    def _check(self, task: BatchTask, rows: pa.RecordBatch) -> None:
        """Raise :class:`SourceError` for a value that Spark could not convert, or a row outside the batch's range."""
        import pyarrow.compute as pc

        wrong = rows.column(_UNCONVERTIBLE).drop_null()
        if len(wrong):
            raise SourceError(
                f"{self._table} holds a value that is not a date or time, or is outside years 1 to 9999: {wrong[0]}.",
                batch=str(task.key),
                hint="Leave the column out by source.columns, or read a view that gives it as text or null.",
            )
        extremes = pc.min_max(rows.column(POSITION)).as_py()
        if extremes["min"] < task.range.start or extremes["max"] >= task.range.end:
            raise SourceError(
                f"{self._table} gave rows from {extremes['min']} to {extremes['max']} for the range {task.range}: "
                "the database compares the cursor's values differently from the way it shows them.",
                batch=str(task.key),
                hint="Choose another cursor, or read a view that gives it as a whole number.",
            )


def _recipe(task: BatchTask) -> ReadQuery | None:
    """Return the query for a batch; None for a replay, and for a batch that needs no query."""
    found = None if is_replay(task) else task.detail.get(query.TASK_KEY)
    return ReadQuery.from_json(found) if found else None


def _connection(job: Job) -> Connection:
    """Return the connection of the JDBC source."""
    name = job.pipeline.source.connection
    assert name is not None
    return require_connection(job.connections[name])


def _properties(connection: Connection, read_query: ReadQuery) -> dict[str, str]:
    """Return the properties of Spark's JDBC read and of the driver, except the URL. They contain the password."""
    at = "bigint" if read_query.kind is CursorKind.NUMBER else "string"
    columns = [f"ckpt_{number} {read_as}" for number, (_, _, read_as) in enumerate(read_query.columns)]
    properties = {
        "driver": read_query.driver,
        "fetchsize": _FETCH_SIZE,
        "customSchema": ", ".join([*columns, f"{query.CURSOR_ALIAS} {at}"]),
    }
    if read_query.guard:
        properties["sessionInitStatement"] = read_query.guard
    return {**driver_properties(connection), **properties}


def _value_sql(number: int, spark: str, read_as: str) -> str:
    """Return SQL of a query's column in the type that the source declares; null for a value that cannot be converted.

    :param number: the column's number in the query, from 0
    :param spark: Spark SQL type that the source declares
    :param read_as: Spark SQL type in which Spark reads the column
    """
    name = f"ckpt_{number}"
    return f"{name} AS {name}" if spark == read_as else f"try_cast({name} AS {spark}) AS {name}"


def _position_sql(kind: CursorKind) -> str:
    """Return Spark SQL that converts a row's cursor value to its position, such as microseconds since 1970 for a
    timestamp.

    The position is null if the value cannot be converted.
    """
    at = query.CURSOR_ALIAS
    return {
        CursorKind.NUMBER: at,
        CursorKind.DATE: f"CAST(unix_date(try_cast({at} AS date)) AS bigint) * {MICROSECONDS_A_DAY}",
        CursorKind.TIMESTAMP: (
            f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', try_cast({at} AS timestamp_ntz))"
        ),
        CursorKind.INSTANT: f"unix_micros(try_cast({at} AS timestamp))",
    }[kind]


def _unconvertible_sql(read_query: ReadQuery) -> str:
    """Return Spark SQL of name and text of a row's first value that Spark cannot convert, such as ``day 0000-00-00``.

    It is null if all values of the row can be converted.
    """
    cursor = f"coalesce(CAST({query.CURSOR_ALIAS} AS string), 'NULL')"
    branches = [
        f"WHEN {_position_sql(read_query.kind)} IS NULL THEN concat({literal(read_query.cursor)}, ' ', {cursor})"
    ]
    for number, (name, spark, read_as) in enumerate(read_query.columns):
        if spark != read_as:
            branches.append(
                f"WHEN ckpt_{number} IS NOT NULL AND try_cast(ckpt_{number} AS {spark}) IS NULL "
                f"THEN concat({literal(name)}, ' ', ckpt_{number})"
            )
    return f"CASE {' '.join(branches)} END"
