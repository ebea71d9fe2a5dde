"""What Spark says of records that the transform rejected, for the stack trace of their dead letters.

A transform never raises, so Spark's own error is found by evaluating a record alone, and a lane cannot ask Spark. So it
puts a batch with such records off and says which they are; the driver evaluates them and has the batch done again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchKey
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.wave import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.lane.read import control_schema
from airflow_provider_ckpt.spark.sql import first_line
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.decode import plain_records

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_provider_ckpt.spark.job import Job

TRACES = "traces"
"""Key of a task's detail: what Spark said of its records, by position."""

_ASKS = "asks"
_SPARKS_OWN = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*?(?=\n[ \t]*+at |\n[ \t]*+(?:JVM|Driver) stacktrace|\Z)", re.DOTALL)
_UNFIT = (ValueError, TypeError, OverflowError, NotImplementedError)
"""What Python and Arrow raise of a value that they cannot hand to Spark: then there is no trace, and no harm."""

_MOST = 100
"""Records of one batch that are evaluated, one after the other."""


@dataclass(frozen=True, slots=True)
class Question:
    """A batch that was put off.

    :param records: positions, verdicts and original columns of the rejected ones, as far as they are to be evaluated;
        None where it only has to be done again, through the transform
    """

    key: BatchKey
    records: pa.Table | None = None

    @classmethod
    def about(cls, task: BatchTask, rejected: pa.Table) -> Question:
        """The question that a batch puts."""
        return cls(task.key, rejected.select([POSITION, c.VERDICT, c.ORIGINAL]).slice(0, _MOST))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict that cannot be taken for an outcome; :func:`told_apart` is its inverse."""
        import pyarrow as pa

        if self.records is None:
            return {_ASKS: self.key.to_json()}

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.records.schema) as stream:
            stream.write_table(self.records)
        return {_ASKS: self.key.to_json(), "records": base64.b64encode(sink.getvalue()).decode()}


def told_apart(rows: Sequence[str]) -> tuple[list[Outcome], list[Question]]:
    """What lanes gave back: outcomes, and questions."""
    import pyarrow as pa

    outcomes, questions = [], []
    for row in rows:
        data = json.loads(row)
        if "records" in data:
            with pa.ipc.open_stream(base64.b64decode(data["records"])) as stream:
                questions.append(Question(BatchKey.from_json(data[_ASKS]), stream.read_all()))
        elif _ASKS in data:
            questions.append(Question(BatchKey.from_json(data[_ASKS])))
        else:
            outcomes.append(Outcome.from_json(data))
    return outcomes, questions


def again(
    wave: Wave, outcomes: Sequence[Outcome], answers: Mapping[BatchKey, Mapping[str, Any]], *, pinned: bool
) -> tuple[Wave, list[Outcome]]:
    """The wave of what was put off, and the outcomes that stand.

    :param answers: what each batch that asked gets to know, as additions to its task's detail
    :param pinned: whether batches that came after it in its partition waited for it
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


def answer(spark: SparkSession, job: Job, question: Question, schema: StructType) -> dict[str, Any]:
    """What Spark says of a batch's records, by position; nothing of one that fails by no error of Spark's.

    :param schema: of what readers yield
    :returns: an addition to the detail of the batch's task
    """
    if question.records is None:
        return {}
    said = {}
    for number in range(question.records.num_rows):
        record = question.records.slice(number, 1)
        kind = ErrorType(record.column(c.VERDICT)[0].as_py())
        text = None
        with suppress(*_UNFIT):
            text = _said(_evaluated(spark, job, record, kind, schema))
        if text:
            said[str(record.column(POSITION)[0].as_py())] = text
    return {TRACES: said}


def _evaluated(
    spark: SparkSession, job: Job, record: pa.Table, kind: ErrorType, schema: StructType
) -> Iterator[DataFrame]:
    """What was evaluated of one record under a guard, without it."""
    import pyarrow as pa

    original = record.column(c.ORIGINAL).combine_chunks()
    original = original.chunk(0) if isinstance(original, pa.ChunkedArray) else original
    control = [pa.nulls(1, field.type) for field in control_schema(plain_records(spark, job.pipeline))]
    table = pa.Table.from_arrays([*control, *original.flatten()], schema.names)
    return apply.unguarded(spark.createDataFrame(table, schema), job.pipeline, job.shape, kind)


def _said(frames: Iterator[DataFrame]) -> str | None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for frame in frames:
        try:
            frame.collect()
        except (PySparkException, Py4JJavaError) as error:  # the latter is what Spark does not translate
            found = _SPARKS_OWN.search(str(error))
            return found[0].strip() if found else first_line(error)
    return None
