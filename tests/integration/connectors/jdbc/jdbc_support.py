"""Support for the tests of the jdbc source: pipelines, and a reader whose rows Spark reads, as in a wave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.reader import JdbcReader
from airflow_provider_ckpt.connectors.jdbc.source import JdbcSource
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import jdbc
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.wave import reader_schema
from tests.services.jdbc import CONNECTION, drivers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def pipeline(table: str, cursor: str, **source: Any) -> Pipeline:
    """A pipeline from a table to nowhere that matters."""
    declared = {"type": "jdbc", "connection": CONNECTION, "table": table, "cursor": cursor, "jars": drivers()}
    return Pipeline.model_validate(
        {"name": "jdbc", "source": {**declared, "close_wait": 0, **source}, "sink": {"type": "delta", "path": "/none"}}
    )


def job_of(declared: Pipeline, connection: Connection, shape: RecordShape) -> Job:
    """Return the job that Spark gets."""
    return Job(declared.document(), SinkContext("ledger", declared.name, 1), shape, {CONNECTION: connection})


def planned(source: JdbcSource, number: int | None = None, end: int | None = None) -> list[BatchTask]:
    """All that a source holds, cut and located."""
    (partition,) = source.partitions()
    todo = RangeToPlan(partition.id, source.start(partition.id, "earliest").position, end)
    batches = source.plan(PlanRequest([todo], number, 10**9)).batches
    tasks = [BatchTask(BatchKey(1, partition.id, seq), batch.range, 1) for seq, batch in enumerate(batches)]
    return list(source.locate(tasks, []))


def frame_of(spark: SparkSession, job: Job, lanes: Sequence[Sequence[BatchTask]]) -> DataFrame:
    """The records of a wave, with their control columns."""
    found = jdbc.read_frame(spark, job, Wave(1, lanes, 60.0), reader_schema(spark, job))
    assert found is not None
    return found


class SparkReader(JdbcReader):
    """Reads a batch by a wave of its own."""

    def __init__(self, spark: SparkSession, declared: Pipeline, connection: Connection, shape: RecordShape) -> None:
        super().__init__(declared, connection, shape)
        self._spark = spark
        self._job = job_of(declared, connection, shape)

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """The records, or the failure that the batch's marker tells."""
        table = frame_of(self._spark, self._job, [[task]]).toArrow()
        mark = json.loads(table.column(c.MARKER)[-1].as_py())
        if mark["failure"] is not None:
            raise AssertionError(mark["failure"]["message"])
        assert mark["read"] == table.num_rows - 1
        names = [POSITION, *(name for name, _ in self._job.shape.columns)]
        self.accept(task, table.slice(0, table.num_rows - 1).select(names).to_batches())
        return super().read(task)


def rows_of(
    spark: SparkSession, declared: Pipeline, connection: Connection, lanes: int = 1
) -> tuple[RecordShape, list[Mapping[str, Any]]]:
    """A table's shape and its rows as Spark reads them, in order."""
    source = JdbcSource(declared, connection)
    try:
        shape = source.shape()
        tasks = planned(source, 2)
    finally:
        source.close()
    packed = [tasks[lane::lanes] for lane in range(lanes)]
    table = frame_of(spark, job_of(declared, connection, shape), packed).toArrow()
    marks = [json.loads(mark) for mark in table.column(c.MARKER).drop_null().to_pylist()]
    assert not [mark["failure"] for mark in marks if mark["failure"]]
    records = table.filter(table.column(c.MARKER).is_null()).sort_by(POSITION)
    return shape, records.select([name for name, _ in shape.columns]).to_pylist()
