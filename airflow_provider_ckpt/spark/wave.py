"""Run a wave of batches as one Spark job with one task per lane: read, transform and deliver, without a shuffle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.partition_order import StoppedPartitions
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.lane import stack_traces
from airflow_provider_ckpt.spark.lane.deliver import deliver_lane
from airflow_provider_ckpt.spark.lane.fast_path import run_lane
from airflow_provider_ckpt.spark.lane.read import control_schema, read_lane
from airflow_provider_ckpt.spark.sql import quote
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.declared_columns import check_schema
from airflow_provider_ckpt.spark.transform.decode import flat_json_decoder
from airflow_provider_ckpt.spark.transform.projection import config_errors, parse_schema
from airflow_provider_ckpt.spark.versions import utc_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.core.errors import ErrorInfo
    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder


WaveWork = Callable[[], tuple[Any, ...]]
"""Function that a lane calls to get the arguments of :func:`lane_arguments`; Spark serializes it for the workers."""

WaveCollector = Callable[["SparkSession", "Job", Wave, bool], Sequence["Row"]]
"""Function that executes a wave's lanes and returns their result rows (see :data:`~.columns.OUTCOME`), such as
:func:`collect`.
"""


def collect(spark: SparkSession, job: Job, wave: Wave, fast_path: bool) -> Sequence[Row]:
    """Execute a wave's lanes with a new data frame, and return one row for each batch (see :data:`~.columns.OUTCOME`).

    :param spark: the session
    :param job: description of the run
    :param wave: the batches, by lane
    :param fast_path: whether lanes read and deliver without Spark SQL (see ``lane/fast_path.py``)
    """
    work = partial(_given, *lane_arguments(spark, job, wave, fast_path=fast_path))
    return wave_frame(spark, job, len(wave.lanes), work, wave, fast_path=fast_path).collect()


def run_wave(spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector = collect) -> list[Outcome]:
    """Run a wave, commit its batches if the sink commits in two phases, and return the outcomes.

    :param spark: a classic or a Spark Connect session
    :param job: description of the run
    :param wave: the batches to run, by lane
    :param collect: function that executes the lanes and returns one result row for each batch
    :return: one outcome for every batch of the wave
    :raises ConfigError: if the transform cannot be used; nothing was sent
    :raises pyspark.errors.PySparkException: if Spark lost a task; it is then unknown which batches were delivered
    """
    job = job.of_wave(wave)
    outcomes = _run_lanes(spark, job, wave, collect, fast_path=_can_use_fast_path(spark, job))
    committer = job.committer()
    if committer is None:
        return outcomes
    staged = [outcome for outcome in outcomes if outcome.outcome is AttemptOutcome.STAGED]
    others = [outcome for outcome in outcomes if outcome.outcome is not AttemptOutcome.STAGED]
    return [*others, *(committer.commit(staged) if staged else [])]


def _run_lanes(spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector, *, fast_path: bool) -> list[Outcome]:
    """Execute the lanes of a wave, and return one outcome for each batch.

    A lane defers a batch that needs Spark SQL, or for whose rejected records it needs Spark's own errors. The driver
    finds these errors, then runs the deferred batches again without the fast path.

    :param spark: the session
    :param job: description of the run
    :param wave: the batches, by lane
    :param collect: function that executes the lanes and returns one result row for each batch
    :param fast_path: whether lanes read and deliver without Spark SQL; they defer a batch that needs it
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        rows = collect(spark, job, wave, fast_path)
    except (PySparkException, Py4JJavaError) as error:  # PySpark has no class of its own for some Java errors
        reader = _spark_reader(job)
        if reader is None:
            raise
        return _run_batches_alone(spark, job, wave, collect, reader.driver_error(job, error))
    outcomes, deferred_batches = stack_traces.split_outcomes([row[0] for row in rows])
    if not deferred_batches:
        return outcomes
    schema = reader_schema(spark, job)
    answers = {deferred.key: stack_traces.evaluate(spark, job, deferred, schema) for deferred in deferred_batches}
    rest, done = stack_traces.retry_wave(wave, outcomes, answers, pinned=job.pipeline.pinned)
    return [*done, *_run_lanes(spark, job, rest, collect, fast_path=False)]


def passes_unchanged(job: Job) -> bool:
    """Return whether lanes pass a run's records from source to sink unchanged, so that no Spark SQL depends on the run.

    They do if there is no transform, null values pass unchanged, the policy of schema changes refuses no column, and
    Spark does not read the source itself.

    :param job: description of the run
    """
    return job.pipeline.transform.passes_unchanged and _takes_records_as_they_are(job)


def _can_use_fast_path(spark: SparkSession, job: Job) -> bool:
    """Return whether a run's lanes can read and deliver without Spark SQL.

    They can if records pass unchanged (:func:`passes_unchanged`), or if the transform only decodes flat JSON.

    :param spark: the session, which parses the schema
    :param job: description of the run
    """
    transform = job.pipeline.transform
    decodes_only = transform.decode and not (transform.where or transform.select or transform.python)
    if not (transform.passes_unchanged or decodes_only) or not _takes_records_as_they_are(job):
        return False
    return transform.passes_unchanged or flat_json_decoder(spark, job.pipeline) is not None


def _takes_records_as_they_are(job: Job) -> bool:
    """Return whether lanes read the source, and neither null values nor columns of a run's records are refused.

    :param job: description of the run
    """
    takes_nulls = job.pipeline.error_handling.null_value_behavior == "passthrough"
    return takes_nulls and not job.pipeline.source.read_by_spark and not job.shape.refused


def _spark_reader(job: Job) -> Any:
    """Return the module that reads the source with Spark itself, such as ``spark/jdbc.py``; None if lanes read it.

    :param job: description of the run
    """
    name = job.pipeline.source.spark_reader
    return None if name is None else import_module(name)


def _run_batches_alone(
    spark: SparkSession, job: Job, wave: Wave, collect: WaveCollector, error: ErrorInfo
) -> list[Outcome]:
    """Run each batch of a wave in a Spark job of its own, after an error of the source has ended the wave.

    If one batch caused the error, only this batch fails then; in a pinned pipeline, later batches of its partition are
    not attempted. The others are delivered as long as the wave's time lasts; a batch that the wave had already
    delivered is not delivered twice, since it has a receipt. If the source as a whole failed, the wave has only one
    batch, or delivery is at_most_once, nothing is run again and all batches fail.

    :param spark: the session
    :param job: description of the run
    :param wave: the batches, by lane
    :param collect: function that executes the lanes and returns one result row for each batch
    :param error: the source's error that ended the wave
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
    """Check the transform of a run, and return the name and the Spark SQL type of each column that it outputs.

    :param spark: the session
    :param job: description of the run
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
    """Return the data frame that runs a wave's lanes and has one row for each batch (see :data:`~.columns.OUTCOME`).

    Its plan can serve other waves. On the fast path it depends on the number of lanes only; otherwise also on the
    declaration and the source's columns. The plan of a source that Spark itself reads contains the batches' queries,
    and serves one wave.

    :param spark: the session
    :param job: description of the run
    :param lanes: number of lanes of the wave
    :param work: function that returns the result of :func:`lane_arguments`; each lane calls it
    :param wave: the batches, by lane; needed only if Spark itself reads the source
    :param fast_path: whether lanes read and deliver without Spark SQL
    """
    numbers = spark.range(0, lanes, 1, lanes)
    outcome = f"{c.OUTCOME} string"
    if fast_path:
        return numbers.mapInArrow(partial(_in_lane, run_lane, work), outcome)
    schema = reader_schema(spark, job)
    arrow = utc_arrow_schema(schema)
    flat_decoder = flat_json_decoder(spark, job.pipeline)
    reader = _spark_reader(job)
    read = reader.read_frame(spark, job, wave, schema) if reader is not None and wave is not None else None
    if read is None:
        read = numbers.mapInArrow(partial(_in_lane, read_lane, work, arrow, flat_decoder), schema)
    judged = apply.apply(read, job.pipeline, job.shape)
    given = job.pipeline.transform.returns
    returns = None
    if given is not None:
        returns = utc_arrow_schema(parse_schema(spark, given, job.context.pipeline, "transform.returns"))
    deliver = partial(_in_lane, deliver_lane, work, returns)
    with config_errors(job.pipeline):
        names = judged.columns
        if set(".`") & set().union(*names):  # Spark cannot resolve such names unquoted
            judged, deliver = (
                judged.toDF(*(f"_{at}" for at in range(len(names)))),
                partial(_with_column_names, names, deliver),
            )
        return judged.mapInArrow(deliver, outcome)


def lane_arguments(spark: SparkSession, job: Job, wave: Wave, *, fast_path: bool) -> tuple[Any, ...]:
    """Return the arguments of a lane's functions that may differ between waves with the same plan.

    They are job and wave, and on the fast path also the Arrow schema of the rows and the decoder of flat JSON records,
    the further arguments of :func:`~.fast_path.run_lane`.

    :param spark: the session, which parses the types of the columns
    :param job: description of the run
    :param wave: the batches, by lane
    :param fast_path: whether lanes read and deliver without Spark SQL
    """
    if not fast_path:
        return job, wave
    flat_decoder = flat_json_decoder(spark, job.pipeline)
    return job, wave, _fast_path_schema(utc_arrow_schema(reader_schema(spark, job)), flat_decoder), flat_decoder


def _given(*arguments: Any) -> tuple[Any, ...]:
    """Return the given arguments.

    ``partial(_given, job, wave)`` is a :data:`WaveWork` that Spark can serialize.

    :param arguments: the result of :func:`lane_arguments`
    """
    return arguments


def _in_lane(
    function: Callable[..., Iterator[pa.RecordBatch]], work: WaveWork, *arguments: Any
) -> Iterator[pa.RecordBatch]:
    """Call a function that does the work of a lane, and return the rows that it yields (for ``mapInArrow``).

    :param function: :func:`~.fast_path.run_lane`, :func:`~.read.read_lane` or :func:`~.deliver.deliver_lane`
    :param work: function that returns the first arguments of ``function``, see :func:`lane_arguments`
    :param arguments: the other arguments of ``function``
    """
    return function(*work(), *arguments)


def _with_column_names(
    names: list[str],
    deliver: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Restore the names of the output columns, which Spark passed as ``_0``, ``_1`` …, and deliver the rows.

    :param names: names of the columns, in order
    :param deliver: function that delivers the rows and yields one result row for each batch
    :param batches: the transform's output
    """
    import pyarrow as pa

    return deliver(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)


def reader_schema(spark: SparkSession, job: Job) -> StructType:
    """Return the Spark schema of the rows that readers yield: the control columns, then the source's columns.

    :param spark: the session, which parses the types of the columns
    :param job: description of the run
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    control = control_schema(flat_json_decoder(spark, job.pipeline))
    fields = [StructField(item.name, from_arrow_type(item.type, prefer_timestamp_ntz=True)) for item in control]
    ddl = ", ".join(f"{quote(name)} {kind}" for name, kind in job.shape.columns)
    return StructType(fields + parse_schema(spark, ddl, job.context.pipeline).fields)


def _fast_path_schema(schema: pa.Schema, flat_decoder: FlatJsonDecoder | None) -> pa.Schema:
    """Return the Arrow schema of the rows that lanes deliver on the fast path: the position, then the sink's columns.

    :param schema: Arrow schema of the rows that readers yield (:func:`reader_schema`)
    :param flat_decoder: decoder of flat (unnested) JSON records, whose fields become the columns; None if nothing is
        decoded
    """
    import pyarrow as pa

    at = schema.get_field_index(POSITION)
    columns = list(schema)[len(c.CONTROL) :] if flat_decoder is None else list(flat_decoder.kind)[:-1]
    return pa.schema([schema.field(at), *columns])
