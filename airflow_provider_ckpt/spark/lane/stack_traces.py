"""Find Spark's own errors for records that the transform rejected. They become the stack traces of the dead letters.

The transform's SQL never raises an error, so Spark's error for a record is found by evaluating the record once more
with SQL that does raise it. A lane cannot run Spark jobs. It therefore does not deliver a batch with such records but
defers it, that is, returns it with the rejected records; the driver evaluates these and runs the batch again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.lane.read import control_schema
from airflow_provider_ckpt.spark.sql import first_line
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.decode import flat_json_decoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.spark.job import Job

TRACES = "traces"
"""Key in :attr:`BatchTask.detail`. The value is a dict that maps the position of a rejected record, as text, to Spark's
error text.
"""

_DEFERRED = "asks"
_SPARK_ERROR = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*?(?=\n[ \t]*+at |\n[ \t]*+(?:JVM|Driver) stacktrace|\Z)", re.DOTALL)
_CONVERSION_ERRORS = (ValueError, TypeError, OverflowError, NotImplementedError)
"""Errors of Python and Arrow for values that they cannot pass to Spark. The dead letter then has no stack trace of
Spark.
"""

_MAX_RECORDS = 100
"""Largest number of records of one batch that are evaluated, each in a Spark job of its own."""


@dataclass(frozen=True, slots=True)
class DeferredBatch:
    """Batch that a lane did not deliver but returned to the driver, which runs it again.

    :param key: key of the batch
    :param records: the first rejected records, whose expressions the driver evaluates once more to get the stack traces
        of their errors: position, the reason for the rejection, and the columns before the transform. None if the lane
        tried to deliver without Spark SQL (the fast path), and the driver only has to run the batch again with it
    """

    key: BatchKey
    records: pa.Table | None = None

    @classmethod
    def from_rejected(cls, task: BatchTask, rejected: pa.Table) -> DeferredBatch:
        """Return a batch that the driver runs again after it has found Spark's errors for the first rejected records.

        The driver finds them for 100 records at most; the other dead letters of the batch have no stack trace.

        :param task: the batch
        :param rejected: the rejected records, as in :attr:`GatheredBatch.rejected`
        """
        return cls(task.key, rejected.select([POSITION, c.VERDICT, c.ORIGINAL]).slice(0, _MAX_RECORDS))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict. Its keys differ from those of an outcome, so that :func:`split_outcomes` recognises
        it."""
        import pyarrow as pa

        if self.records is None:
            return {_DEFERRED: self.key.to_json()}

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.records.schema) as stream:
            stream.write_table(self.records)
        return {_DEFERRED: self.key.to_json(), "records": base64.b64encode(sink.getvalue()).decode()}


def split_outcomes(rows: Sequence[str]) -> tuple[list[Outcome], list[DeferredBatch]]:
    """Parse the result rows of a wave, each a JSON text, into outcomes and deferred batches."""
    import pyarrow as pa

    outcomes, deferred_batches = [], []
    for row in rows:
        data = json.loads(row)
        if "records" in data:
            with pa.ipc.open_stream(base64.b64decode(data["records"])) as stream:
                deferred_batches.append(DeferredBatch(BatchKey.from_json(data[_DEFERRED]), stream.read_all()))
        elif _DEFERRED in data:
            deferred_batches.append(DeferredBatch(BatchKey.from_json(data[_DEFERRED])))
        else:
            outcomes.append(Outcome.from_json(data))
    return outcomes, deferred_batches


def retry_wave(
    wave: Wave, outcomes: Sequence[Outcome], answers: Mapping[BatchKey, Mapping[str, Any]], *, pinned: bool
) -> tuple[Wave, list[Outcome]]:
    """Return a wave that runs the deferred batches again, and the outcomes of the first wave that are final.

    :param wave: the wave that has run
    :param outcomes: outcomes of its batches that were not deferred
    :param answers: for each deferred batch, entries to add to :attr:`BatchTask.detail`, as :func:`evaluate` returns
        them
    :param pinned: whether batches of a partition must keep their order; batches that were not attempted because they
        come after a deferred one are then part of the follow-up wave
    """
    first = {key.partition: key.seq for key in sorted(answers, reverse=True)} if pinned else {}
    waited = {
        outcome.key
        for outcome in outcomes
        if outcome.outcome is AttemptOutcome.NOT_ATTEMPTED
        and outcome.key.seq > first.get(outcome.key.partition, outcome.key.seq)
    }
    lanes = [
        [
            replace(task, detail={**task.detail, **answers.get(task.key, {})})
            for task in lane
            if task.key in answers or task.key in waited
        ]
        for lane in wave.lanes
    ]
    rest = replace(wave, lanes=[lane for lane in lanes if lane])
    return rest, [outcome for outcome in outcomes if outcome.key not in waited]


def evaluate(spark: SparkSession, job: Job, deferred: DeferredBatch, schema: StructType) -> dict[str, Any]:
    """Evaluate the rejected records of a deferred batch one by one, so that Spark raises its error for each.

    :param spark: the session
    :param job: description of the run
    :param deferred: the deferred batch
    :param schema: Spark schema of the rows that readers yield
    :return: dict to add to :attr:`BatchTask.detail`: under :data:`TRACES`, the error texts by position; empty if the
        batch has no records to evaluate
    """
    if deferred.records is None:
        return {}
    errors = {}
    for number in range(deferred.records.num_rows):
        record = deferred.records.slice(number, 1)
        kind = ErrorType(record.column(c.VERDICT)[0].as_py())
        text = None
        with suppress(*_CONVERSION_ERRORS):
            text = _error_text(_evaluating_frames(spark, job, record, kind, schema))
        if text:
            errors[str(record.column(POSITION)[0].as_py())] = text
    return {TRACES: errors}


def _evaluating_frames(
    spark: SparkSession, job: Job, record: pa.Table, kind: ErrorType, schema: StructType
) -> Iterator[DataFrame]:
    """Yield data frames that evaluate a rejected record with the transform's expressions so that errors are raised.

    :param spark: the session
    :param job: description of the run
    :param record: one row of :attr:`DeferredBatch.records`
    :param kind: error type of the record, which shows the step of the transform that failed
    :param schema: Spark schema of the rows that readers yield
    """
    import pyarrow as pa

    original = record.column(c.ORIGINAL).combine_chunks()
    original = original.chunk(0) if isinstance(original, pa.ChunkedArray) else original
    control = [pa.nulls(1, field.type) for field in control_schema(flat_json_decoder(spark, job.pipeline))]
    table = pa.Table.from_arrays([*control, *original.flatten()], schema.names)
    return apply.frames_without_try(spark.createDataFrame(table, schema), job.pipeline, job.shape, kind)


def _error_text(frames: Iterator[DataFrame]) -> str | None:
    """Execute data frames until one fails, and return Spark's error text without stack frames; None if none fails.

    :param frames: data frames that evaluate a rejected record
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for frame in frames:
        try:
            frame.collect()
        except (PySparkException, Py4JJavaError) as error:  # PySpark has no class of its own for some Java errors
            found = _SPARK_ERROR.search(str(error))
            return found[0].strip() if found else first_line(error)
    return None
