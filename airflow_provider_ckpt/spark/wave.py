"""Run a wave as one Spark job with one task per lane: read, transform and deliver, without a shuffle in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.partition_order import StoppedPartitions
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import jdbc
from airflow_provider_ckpt.spark.lane import stack_traces
from airflow_provider_ckpt.spark.lane.deliver import deliver_lane
from airflow_provider_ckpt.spark.lane.fast_path import run_lane
from airflow_provider_ckpt.spark.lane.read import control_schema, read_lane
from airflow_provider_ckpt.spark.sql import quote
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.declared_columns import check_schema
from airflow_provider_ckpt.spark.transform.decode import flat_json_decoder
from airflow_provider_ckpt.spark.transform.projection import config_errors, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.core.errors import ErrorInfo
    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder


WaveWork = Callable[[], tuple["Job", Wave]]
"""Function that a lane calls to get its run and its wave; it is serialized for the Python workers."""

WaveCollector = Callable[["SparkSession", "Job", Wave, bool], Sequence["Row"]]
"""Function that executes a wave's lanes and returns an outcome row for each batch; like :func:`collect`."""


def collect(spark: SparkSession, job: Job, wave: Wave, fast_path: bool) -> Sequence[Row]:
    """Execute a wave's lanes by a new data frame, and return an outcome row for each batch.

    :param spark: the session
    :param job: the run
    :param wave: the batches, by lane
    :param fast_path: whether lanes read and deliver without Spark SQL (see ``lane/fast_path.py``)
    """
    return wave_frame(spark, job, len(wave.lanes), partial(_given, job, wave), wave, fast_path=fast_path).collect()


def run_wave(spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector = collect) -> list[Outcome]:
    """Run a wave, commit its batches if the sink commits in two phases, and return the outcomes.

    :param spark: a classic or a Connect session
    :param job: the run
    :param wave: the batches to run, by lane
    :param collect: executes the lanes and returns their outcome rows
    :return: one outcome for every batch of the wave
    :raises ConfigError: if the transform cannot be used; nothing was sent
    :raises pyspark.errors.PySparkException: if Spark lost a task; whether batches were delivered is unknown then
    """
    outcomes = _run_lanes(spark, job, wave, collect, fast_path=_can_use_fast_path(spark, job))
    committer = job.committer()
    if committer is None:
        return outcomes
    staged = [outcome for outcome in outcomes if outcome.outcome is AttemptOutcome.STAGED]
    others = [outcome for outcome in outcomes if outcome.outcome is not AttemptOutcome.STAGED]
    return [*others, *(committer.commit(staged) if staged else [])]


def _run_lanes(spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector, *, fast_path: bool) -> list[Outcome]:
    """Run all lanes; evaluate deferred batches on the driver and run them again; return an outcome for each batch.

    :param spark: the session
    :param job: the run
    :param wave: the batches, by lane
    :param collect: executes the lanes and returns their outcome rows
    :param fast_path: whether lanes read and deliver without Spark SQL; batches that need it are deferred
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        rows = collect(spark, job, wave, fast_path)
    except (PySparkException, Py4JJavaError) as error:  # PySpark has no class of its own for some Java errors
        if not job.pipeline.source.read_by_spark:
            raise
        return _run_batches_alone(spark, job, wave, collect, jdbc.driver_error(job, error))
    outcomes, deferred_batches = stack_traces.split_outcomes([row[0] for row in rows])
    if not deferred_batches:
        return outcomes
    schema = reader_schema(spark, job)
    answers = {deferred.key: stack_traces.evaluate(spark, job, deferred, schema) for deferred in deferred_batches}
    rest, done = stack_traces.retry_wave(wave, outcomes, answers, pinned=job.pipeline.pinned)
    return [*done, *_run_lanes(spark, job, rest, collect, fast_path=False)]


def _can_use_fast_path(spark: SparkSession, job: Job) -> bool:
    """Return whether lanes can use the fast path: only flat JSON is decoded, and Spark SQL has nothing else to do."""
    takes_nulls = job.pipeline.error_handling.null_value_behavior == "passthrough"
    if job.pipeline.source.read_by_spark or not takes_nulls:
        return False
    transform = job.pipeline.transform
    decodes_only = transform.decode and not (transform.where or transform.select or transform.python)
    return transform.passes_unchanged or bool(decodes_only and flat_json_decoder(spark, job.pipeline))


def _run_batches_alone(
    spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector, error: ErrorInfo
) -> list[Outcome]:
    """Run each batch of a wave alone, after an error of the source ended the wave; return the outcomes.

    :param error: the source's error that ended the wave

    One batch may have caused the error. Each batch gets a Spark job of its own, so the error fails that batch only and
    the others are delivered; batches that had been delivered before have a receipt. The batches are not run again, and
    all of them fail, if the source as a whole failed or delivery is at_most_once.
    """
    if error.is_outage or len(wave.tasks) == 1 or job.pipeline.delivery == "at_most_once":
        return [Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error) for task in wave.tasks]
    deadline = time.monotonic() + wave.seconds
    stopped = StoppedPartitions(pinned=job.pipeline.pinned)
    outcomes: list[Outcome] = []
    for task in wave.tasks:
        if outcomes and (task.key in stopped or time.monotonic() > deadline):
            outcomes.append(Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED))
            continue
        found = _run_lanes(spark, job, replace(wave, lanes=[[task]]), collect, fast_path=False)
        outcomes += found
        if any(outcome.outcome is AttemptOutcome.FAILED for outcome in found):
            stopped.add(task.key)
    return outcomes


def check_transform(spark: SparkSession, job: Job) -> list[tuple[str, str]]:
    """Check a run's transform, and return name and Spark SQL type of each output column.

    :raises ConfigError: if the transform cannot be used
    """
    pipeline = job.pipeline
    for key, ddl in (
        ("transform.schema", pipeline.transform.schema_),
        ("transform.returns", pipeline.transform.returns),
    ):
        if ddl is not None:
            check_schema(parse_schema(spark, ddl, pipeline.name, key), pipeline.name, key)
    if _can_use_fast_path(spark, job):
        flat_decoder = flat_json_decoder(spark, pipeline)
        return list(job.shape.columns if flat_decoder is None else flat_decoder.fields)
    empty = spark.createDataFrame([], reader_schema(spark, job))
    columns = apply.check(empty, pipeline, job.shape)
    if pipeline.transform.returns is not None:
        job.transform_function()
        columns = parse_schema(spark, pipeline.transform.returns, pipeline.name, "transform.returns")
    return [(found.name, found.dataType.simpleString()) for found in columns.fields]


def wave_frame(
    spark: SparkSession, job: Job, lanes: int, work: WaveWork, wave: Wave | None = None, *, fast_path: bool
) -> DataFrame:
    """Return the data frame that runs a wave's lanes and has one row for each batch.

    Its plan depends on the pipeline's declaration, the source's columns and the number of lanes, unless Spark itself
    reads the source.

    :param spark: the session
    :param job: the run
    :param lanes: number of lanes
    :param work: called in a lane, returns its run and wave
    :param wave: the wave, needed if Spark itself reads the source
    :param fast_path: whether lanes read and deliver without Spark SQL
    """
    numbers = spark.range(0, lanes, 1, lanes)
    outcome = f"{c.OUTCOME} string"
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = reader_schema(spark, job)
    arrow = to_arrow_schema(schema, timezone="UTC")
    flat_decoder = flat_json_decoder(spark, job.pipeline)
    if fast_path:
        return numbers.mapInArrow(
            partial(_in_lane, run_lane, work, _fast_path_schema(arrow, flat_decoder), flat_decoder), outcome
        )
    read = jdbc.read_frame(spark, job, wave, schema) if job.pipeline.source.read_by_spark and wave is not None else None
    if read is None:
        read = numbers.mapInArrow(partial(_in_lane, read_lane, work, arrow, flat_decoder), schema)
    judged = apply.apply(read, job.pipeline, job.shape)
    given = job.pipeline.transform.returns
    returns = None
    if given is not None:
        returns = to_arrow_schema(parse_schema(spark, given, job.context.pipeline, "transform.returns"), timezone="UTC")
    deliver = partial(_in_lane, deliver_lane, work, returns)
    with config_errors(job.pipeline):
        names = judged.columns
        if set(".`") & set().union(*names):  # Spark cannot resolve such names unquoted
            judged, deliver = (
                judged.toDF(*(f"_{at}" for at in range(len(names)))),
                partial(_with_column_names, names, deliver),
            )
        return judged.mapInArrow(deliver, outcome)


def _given(job: Job, wave: Wave) -> tuple[Job, Wave]:
    """Return the arguments: a :data:`WaveWork` that carries run and wave with it when it is serialized."""
    return job, wave


def _in_lane(
    function: Callable[..., Iterator[pa.RecordBatch]], work: WaveWork, *arguments: Any
) -> Iterator[pa.RecordBatch]:
    """Call a lane's function with its run and wave, and return the rows that it yields (for ``mapInArrow``).

    :param function: :func:`~.fast_path.run_lane`, :func:`~.read.read_lane` or :func:`~.deliver.deliver_lane`
    :param work: returns run and wave
    :param arguments: the function's other arguments
    """
    return function(*work(), *arguments)


def _with_column_names(
    names: list[str],
    deliver: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Rename the columns of the transform's output, which Spark passed as ``_0``, ``_1`` …, and deliver the batches.

    :param names: names of the columns
    :param deliver: delivers the batches and yields outcome rows
    :param batches: the transform's output
    """
    import pyarrow as pa

    return deliver(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)


def reader_schema(spark: SparkSession, job: Job) -> StructType:
    """Return the Spark schema of the rows that readers yield: the control columns, then the source's columns."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    control = control_schema(flat_json_decoder(spark, job.pipeline))
    fields = [StructField(item.name, from_arrow_type(item.type)) for item in control]
    ddl = ", ".join(f"{quote(name)} {kind}" for name, kind in job.shape.columns)
    return StructType(fields + parse_schema(spark, ddl, job.context.pipeline).fields)


def _fast_path_schema(schema: pa.Schema, flat_decoder: FlatJsonDecoder | None) -> pa.Schema:
    """Return the Arrow schema of the rows that lanes deliver without Spark SQL: the position, then the output columns.

    :param schema: Arrow schema of :func:`reader_schema`
    :param flat_decoder: decoder of flat JSON records, None if nothing is decoded
    """
    import pyarrow as pa

    at = schema.get_field_index(POSITION)
    columns = list(schema)[len(c.CONTROL) :] if flat_decoder is None else list(flat_decoder.kind)[:-1]
    return pa.schema([schema.field(at), *columns])
