"""Get Spark's own errors for records that the transform rejected, for the stack traces of their dead letters.

The transform's SQL never raises an error, so Spark's error for a record is found by evaluating the record once more,
without try. A lane cannot run Spark jobs, so it defers the batch and returns these records. The driver evaluates them
and runs the batch again.
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
from airflow_provider_ckpt.core.wave import BatchTask, Outcome, Wave
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
"""Key in a task's detail: Spark's error texts for the batch's rejected records, by position."""

_DEFERRED = "asks"
_SPARK_ERROR = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*?(?=\n[ \t]*+at |\n[ \t]*+(?:JVM|Driver) stacktrace|\Z)", re.DOTALL)
_CONVERSION_ERRORS = (ValueError, TypeError, OverflowError, NotImplementedError)
"""Errors of Python and Arrow for values that they cannot pass to Spark; the record then has no stack trace."""

_MAX_RECORDS = 100
"""Largest number of records of one batch that are evaluated, one after the other."""


@dataclass(frozen=True, slots=True)
class DeferredBatch:
    """Batch that a lane did not deliver but returned to the driver, which runs it again.

    :param key: the batch
    :param records: position, verdict and original columns of the rejected records to evaluate; None if the batch must
        only be run again, through the transform
    """

    key: BatchKey
    records: pa.Table | None = None

    @classmethod
    def from_rejected(cls, task: BatchTask, rejected: pa.Table) -> DeferredBatch:
        """Return a deferred batch for which the driver evaluates the rejected records, up to 100 of them.

        :param task: the batch
        :param rejected: the rejected records, as :class:`GatheredBatch` has them
        """
        return cls(task.key, rejected.select([POSITION, c.VERDICT, c.ORIGINAL]).slice(0, _MAX_RECORDS))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict, which :func:`split_outcomes` can tell from the dict of an outcome."""
        import pyarrow as pa

        if self.records is None:
            return {_DEFERRED: self.key.to_json()}

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.records.schema) as stream:
            stream.write_table(self.records)
        return {_DEFERRED: self.key.to_json(), "records": base64.b64encode(sink.getvalue()).decode()}


def split_outcomes(rows: Sequence[str]) -> tuple[list[Outcome], list[DeferredBatch]]:
    """Parse the rows that lanes returned into outcomes and deferred batches."""
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
    """Return a follow-up wave of the deferred batches, and the outcomes that are final.

    :param wave: the wave that has run
    :param outcomes: its outcomes
    :param answers: for each deferred batch, entries to add to its task's detail, as :func:`evaluate` returns them
    :param pinned: whether later batches of a deferred batch's partition waited for it; they are in the follow-up wave,
        too
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
    """Evaluate a deferred batch's rejected records, and return Spark's error text for each that makes Spark raise an
    error.

    :param spark: the session
    :param job: the run
    :param deferred: the deferred batch
    :param schema: schema of the rows that readers yield
    :return: entry to add to the detail of the batch's task: :data:`TRACES` with the texts by position
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
    """Yield data frames that evaluate one rejected record with the expressions of the transform, but not under try.

    :param record: a row of :attr:`DeferredBatch.records`
    :param kind: error type of the record
    :param schema: schema of the rows that readers yield
    """
    import pyarrow as pa

    original = record.column(c.ORIGINAL).combine_chunks()
    original = original.chunk(0) if isinstance(original, pa.ChunkedArray) else original
    control = [pa.nulls(1, field.type) for field in control_schema(flat_json_decoder(spark, job.pipeline))]
    table = pa.Table.from_arrays([*control, *original.flatten()], schema.names)
    return apply.frames_without_try(spark.createDataFrame(table, schema), job.pipeline, job.shape, kind)


def _error_text(frames: Iterator[DataFrame]) -> str | None:
    """Execute data frames until Spark raises an error, and return the error's text without Java's frames; else None."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for frame in frames:
        try:
            frame.collect()
        except (PySparkException, Py4JJavaError) as error:  # PySpark has no class of its own for some Java errors
            found = _SPARK_ERROR.search(str(error))
            return found[0].strip() if found else first_line(error)
    return None
