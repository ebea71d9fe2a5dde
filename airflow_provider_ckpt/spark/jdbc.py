"""Read a wave of a JDBC source with Spark itself: one query per batch, in lane order.

Each batch is one partition of Spark's JDBC read and is sorted by position. The partitions of a lane (one Spark task)
are concatenated without a shuffle (``coalesce``), which keeps their order. A function in each lane then adds the
control columns and the marker rows, which the readers of other sources add while they read.
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
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
from airflow_provider_ckpt.spark.dead_letters.replay_reader import is_replay
from airflow_provider_ckpt.spark.lane.read import read_batches
from airflow_provider_ckpt.spark.sql import first_line, literal
from airflow_provider_ckpt.spark.versions import utc_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.spark.job import Job

_SLOT = "__slot"
"""Column of type int: the slot of a row, which is the number of the JDBC read's partition that the row comes from. Each
lane has ``slots`` partitions, as many as the longest lane has batches; unused ones are empty. Batch ``i`` of lane ``n``
is in slot ``n * slots + i``.
"""

_UNCONVERTIBLE = "__wrong"
"""Column of type string: name and text of the first value of a row that Spark cannot convert to a date or time; null if
there is none.
"""

_FETCH_SIZE = "5000"
"""Number of rows that the JDBC driver fetches at a time. Without it, some drivers hold a whole table in memory."""

_READ_INSTRUCTIONS = frozenset({Instruction.DELIVER, Instruction.REJECT})


def read_frame(spark: SparkSession, job: Job, wave: Wave, schema: StructType) -> DataFrame | None:
    """Return a data frame that reads a wave's records with control columns; None if no batch needs a query.

    :param spark: the session that reads
    :param job: description of the run, with the JDBC connection
    :param wave: the batches to read, by lane
    :param schema: columns of the data frame: the control columns, then the source's columns
    :raises ConfigError: if Spark cannot read the table, for example because of the type of a column
    :raises Exception: Spark's error, if the JDBC driver caused it or is missing; :func:`driver_error` converts it
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    recipes = [[_query_of(task) for task in lane] for lane in wave.lanes]
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
    lanes = rows.sortWithinPartitions(POSITION).coalesce(len(wave.lanes))
    return lanes.mapInArrow(partial(_read_lane, job, wave, slots, utc_arrow_schema(schema)), schema)


def driver_error(job: Job, error: Exception) -> ErrorInfo:
    """Return the JDBC driver's error that made a Spark job fail.

    :param job: description of the run
    :param error: the exception that Spark raised for the job of a wave
    :raises ConfigError: if Spark does not find the JDBC driver's classes
    :raises Exception: ``error`` itself, if the JDBC driver did not cause it
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
    operation = f"reading {job.pipeline.source.place} (connection {connection.id!r})"
    return error_info(found, operation, connection)


def _read_lane(
    job: Job, wave: Wave, slots: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lane that this Spark task runs, with a marker row after each batch (for ``mapInArrow``).

    :param job: description of the run
    :param wave: the batches, by lane
    :param slots: number of partitions of Spark's JDBC read that belong to each lane
    :param schema: Arrow schema of the rows to yield: the control columns, then the source's columns
    :param batches: rows of the JDBC read for this lane
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    lane = context.partitionId()
    stream = SlotStream(batches, lane * slots, slots)

    def reader() -> _LaneReader:
        return _LaneReader(job, wave.lanes[lane], stream)

    yield from read_batches(job, wave, lane, schema, None, reader, _READ_INSTRUCTIONS)


class SlotStream:
    """Stream of the rows that Spark has read for a lane, divided into slots.

    A slot is one partition of Spark's JDBC read and has the rows of one batch.

    :param batches: the lane's rows from Spark, in the order of their slots; the first column is the number of the slot
    :param first: number of the lane's first slot among the slots of all lanes
    :param slots: number of slots of the lane
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], first: int, slots: int) -> None:
        self._batches = batches
        self._first, self._end = first, first + slots
        self._rest: pa.RecordBatch | None = None

    def of(self, slot: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one slot; rows of earlier slots are skipped, since rows can be read once only.

        :param slot: the slot's index in the lane, from 0
        :raises SourceError: if rows arrive out of order or belong to another lane, since rows would then be lost
        """
        import numpy as np

        wanted = self._first + slot
        while (batch := self._take()) is not None:
            slots = batch.column(0).to_numpy()
            if slots[0] < self._first or slots[-1] >= self._end or (np.diff(slots) < 0).any():
                raise SourceError(
                    "Spark returned rows of another lane, or rows in another order than that of the batches; nothing "
                    "of them was sent.",
                    hint="This is a defect of this package or of Spark; please report it.",
                )
            start, end = (int(edge) for edge in np.searchsorted(slots, [wanted, wanted + 1]))
            self._rest = batch.slice(end) if end < batch.num_rows else None  # before yielding: the caller may stop here
            if start < end:
                yield batch.slice(start, end - start)
            if self._rest is not None:
                return

    def _take(self) -> pa.RecordBatch | None:
        """Return the next non-empty Arrow batch: the rest of the last one, or a new one from Spark; None at the end."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        return next((batch for batch in self._batches if batch.num_rows), None)


class _LaneReader:
    """Reader of a lane (:class:`~.source_protocol.Reader`) whose rows Spark has already read.

    It passes Spark's rows of each batch to the connector's reader, which converts them to records.

    :param job: description of the run, which creates the connector's reader
    :param tasks: the lane's batches, in the order in which their rows arrive
    :param stream: Spark's rows for the lane, one slot per batch
    """

    def __init__(self, job: Job, tasks: Sequence[BatchTask], stream: SlotStream) -> None:
        self._reader = job.reader()
        self._names = [POSITION, *(name for name, _ in job.shape.columns)]
        self._table = job.pipeline.source.place
        self._slots = {task.key: slot for slot, task in enumerate(tasks)}
        self._stream = stream

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Pass Spark's rows of a batch to the connector's reader, and yield the records into which it converts them.

        The records have the form that :meth:`~.source_protocol.Reader.read` describes.

        :param task: the batch
        """
        cast("SparkFedReader", self._reader).accept(task, self._records(task))
        return self._reader.read(task)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead-letter headers that name the source of the record at a position.

        :param task: the batch
        :param position: position of the record
        """
        return self._reader.origin(task, position)

    def close(self) -> None:
        """Close the connector's reader."""
        self._reader.close()

    def _records(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Check Spark's rows of a batch, and yield them with their position and the source's columns."""
        import pyarrow as pa

        for rows in self._stream.of(self._slots[task.key]):
            self._check(task, rows)
            yield pa.RecordBatch.from_arrays([rows.column(POSITION), *rows.columns[3:]], self._names)

    def _check(self, task: BatchTask, rows: pa.RecordBatch) -> None:
        """Raise an error if Spark could not convert a value, or if a row is outside the batch's range.

        :param task: the batch
        :param rows: rows that Spark has read for the batch
        :raises SourceError: naming the value, or the positions outside the range
        """
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


def _query_of(task: BatchTask) -> ReadQuery | None:
    """Return the query that reads a batch; None if the batch replays dead letters or needs no query."""
    found = None if is_replay(task) else task.detail.get(query.TASK_KEY)
    return ReadQuery.from_json(found) if found else None


def _connection(job: Job) -> Connection:
    """Return the connection of the run's JDBC source."""
    name = job.pipeline.source.connection
    assert name is not None
    return require_connection(job.connections[name])


def _properties(connection: Connection, read_query: ReadQuery) -> dict[str, str]:
    """Return the options of Spark's JDBC read and the driver's properties, among them the password, without the URL.

    :param connection: the JDBC connection
    :param read_query: query of any batch of the wave; all have the same driver and columns
    """
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
    """Return Spark SQL that converts a column of the query to its declared type, or to null where that fails.

    :param number: index of the column in the query, from 0
    :param spark: Spark SQL type that the source declares for the column
    :param read_as: Spark SQL type in which Spark's JDBC read returns the column
    """
    name = f"ckpt_{number}"
    return f"{name} AS {name}" if spark == read_as else f"try_cast({name} AS {spark}) AS {name}"


def _position_sql(kind: CursorKind) -> str:
    """Return Spark SQL that converts a cursor value to its position, such as a timestamp to microseconds since 1970.

    The SQL yields null for a value that cannot be converted.

    :param kind: type of the cursor column, which decides the conversion
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
    """Return Spark SQL that yields column name and text of a row's first value that Spark cannot convert.

    An example is ``day 0000-00-00``. The SQL yields null if all values of the row can be converted.

    :param read_query: query of any batch of the wave, with the columns and their types
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
