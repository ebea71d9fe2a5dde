"""Runs one wave as one Spark job: a task a lane, reader → transform → delivery, no shuffle in between."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import traces, transform
from airflow_provider_ckpt.spark.copying import copy_lane
from airflow_provider_ckpt.spark.delivery import deliver_lane
from airflow_provider_ckpt.spark.reading import control_schema, read_lane
from airflow_provider_ckpt.spark.sql import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.spark.job import Job


def run_wave(spark: SparkSession, job: Job, wave: Wave) -> list[Outcome]:
    """Work a wave off and, for a two-phase sink, commit it.

    :returns: one outcome for every batch of the wave
    :raises ConfigError: if the transform cannot be used; nothing was sent
    :raises pyspark.errors.PySparkException: if Spark lost a task; what became of the batches is unknown
    """
    outcomes = _worked_off(spark, job, wave)
    committer = job.committer()
    if committer is None:
        return outcomes
    staged = [outcome for outcome in outcomes if outcome.outcome is AttemptOutcome.STAGED]
    others = [outcome for outcome in outcomes if outcome.outcome is not AttemptOutcome.STAGED]
    return [*others, *(committer.commit(staged) if staged else [])]


def _worked_off(spark: SparkSession, job: Job, wave: Wave) -> list[Outcome]:
    """The outcomes of all lanes, after whatever they asked for was found out."""
    outcomes, questions = traces.told_apart([row[0] for row in _frame(spark, job, wave).collect()])
    if not questions:
        return outcomes
    schema = _reader_schema(job)
    answers = {question.key: traces.answer(spark, job, question, schema) for question in questions}
    rest, done = traces.again(wave, outcomes, answers, pinned=job.pipeline.pinned)
    return [*done, *_worked_off(spark, job, rest)]


def check_transform(spark: SparkSession, job: Job) -> list[tuple[str, str]]:
    """The columns that the transform puts out: name and Spark SQL type.

    :raises ConfigError: if it cannot be used
    """
    pipeline = job.pipeline
    if pipeline.transform.trivial:
        return list(job.shape.columns)
    empty = spark.createDataFrame([], _reader_schema(job))
    judged = transform.apply(empty, pipeline, job.shape).schema.fields
    control = {*c.CONTROL, c.VERDICT, c.MESSAGE, c.ORIGINAL}
    return [(found.name, found.dataType.simpleString()) for found in judged if found.name not in control]


def _frame(spark: SparkSession, job: Job, wave: Wave) -> DataFrame:
    lanes = spark.range(0, len(wave.lanes), 1, len(wave.lanes))
    outcome = f"{c.OUTCOME} string"
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = _reader_schema(job)
    arrow = to_arrow_schema(schema, timezone="UTC")
    if job.pipeline.transform.trivial:
        records = _without_control(arrow)
        return lanes.mapInArrow(partial(copy_lane, job, wave, records), outcome)
    read = lanes.mapInArrow(partial(read_lane, job, wave, arrow), schema)
    judged = transform.apply(read, job.pipeline, job.shape)
    return judged.mapInArrow(partial(deliver_lane, job, wave), outcome)


def _reader_schema(job: Job) -> StructType:
    """The control columns and the source's columns, as Spark types."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(item.name, from_arrow_type(item.type)) for item in control_schema()]
    ddl = ", ".join(f"{quote(name)} {kind}" for name, kind in job.shape.columns)
    return StructType(fields + transform.parse_schema(ddl, job.context.pipeline).fields)


def _without_control(schema: pa.Schema) -> pa.Schema:
    """The position and the source's columns alone."""
    for name in c.CONTROL:
        if name != POSITION:
            schema = schema.remove(schema.get_field_index(name))
    return schema
