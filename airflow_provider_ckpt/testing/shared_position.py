"""Run a job whose records all have the same position, to test that each of them gets an outcome of its own.

A sink's conformance suite uses this job. The records enter a lane as Spark's part of the transform outputs them, with
their verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_content import PositionedDeadLetters
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters.replay_reader import ReplayReader, replay_detail
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.lane.deliver import Lane
from airflow_provider_ckpt.spark.lane.gather import Gatherer
from airflow_provider_ckpt.spark.transform.python_function import Function

SHAPE = RecordShape(raw=False, columns=(("number", "bigint"),))
RETURNS = pa.schema([("id", pa.int64())])
AT = 7

Verdict = str | None
Ids = Mapping[int, int | None]


class _Reader:
    """Reader of a batch whose records all have the same position; their only column ``number`` counts from 0.

    :param records: number of records
    """

    def __init__(self, records: int) -> None:
        self._records = records

    def read(self, _: BatchTask) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({POSITION: [AT] * self._records, "number": range(self._records)})

    def origin(self, _: BatchTask, position: int) -> Mapping[str, str]:
        return {"source-position": str(position)}

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class SharedJob(Job):
    """Job whose records all have the same source position.

    :param open_writer: function that opens a writer of the sink
    :param open_sink: function that opens the sink
    :param records: number of the source's records
    :param ids: by record number, the id that the transform's Python function returns; it raises an error for other
        numbers
    """

    open_writer: Callable[[SinkContext], Writer] = field(kw_only=True)
    open_sink: Callable[[SinkContext], Sink] = field(kw_only=True)
    records: int = field(kw_only=True)
    ids: Ids = field(kw_only=True)

    def reader(self) -> ReplayReader:
        """Open a reader for one lane, which reads the source or, for a replay, the sink's dead letters."""
        return ReplayReader(_Reader(self.records), lambda: self.open_sink(self.context), self.shape)

    def writer(self) -> Writer:
        """Open a writer of the sink for one lane."""
        return self.open_writer(self.context)

    def transform_function(self) -> Function:
        """Return the transform's Python function, which replaces each record's number by its id."""
        return lambda rows: pa.table({"id": pa.array([self.ids[n] for n in rows["number"].to_pylist()], pa.int64())})


def job(
    sink: Callable[[SinkContext], Sink],
    writer: Callable[[SinkContext], Writer],
    context: SinkContext,
    records: int,
    ids: Ids,
) -> SharedJob:
    """Create a job that delivers records with a shared position to a sink.

    :param sink: function that opens the sink
    :param writer: function that opens a writer of the sink
    :param context: ledger, pipeline and epoch of the run
    :param records: number of the source's records
    :param ids: by record number, the id that the transform's Python function returns; it raises an error for other
        numbers
    """
    document = {
        "name": context.pipeline,
        "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "at"},
        "sink": {"type": "postgres", "connection": "shop", "table": "target"},
    }
    return SharedJob(document, context, SHAPE, {}, open_sink=sink, open_writer=writer, records=records, ids=ids)


def send(job: SharedJob, task: BatchTask, verdicts: Sequence[Verdict]) -> Outcome:
    """Deliver the records of a batch through a lane, and return the outcome.

    :param job: the job
    :param task: the batch
    :param verdicts: verdict of Spark's part of the transform on each record; None for a record that passes
    """
    with closing(Lane(job, transformed=True, returns=RETURNS)) as lane:
        (records,) = lane.reader.read(task)
        gathering = Gatherer(traced=False)
        (piece,) = gathering.split(_judged(records, verdicts))
        gathering.add(piece)
        gathered = gathering.take(lane.reader, task, SHAPE, read_by_spark=False)
        return lane.deliver(task, gathered)


def replay(task: BatchTask, left: Mapping[str, int], epoch: int, seq: int = 0) -> BatchTask:
    """Return a batch that replays the dead letters of another batch.

    :param task: the batch that left the dead letters
    :param left: number of that batch's dead letters, by error type
    :param epoch: epoch of the run that stored the dead letters
    :param seq: number of the new batch
    """
    start, placed = 0, []
    for error_type, records in left.items():
        placed.append(PositionedDeadLetters(DeadLetters(task.key, error_type, 0, records, task.attempt, epoch), start))
        start += records
    key = BatchKey(1, "dlq:1:main", seq)
    return BatchTask(key, Range(0, start), 1, detail=replay_detail(placed, newest_first=False))


def kept(sink: Sink, source: AttemptKey) -> list[tuple[int, int]]:
    """Return the dead letters that a sink stored for an attempt, each as a pair of position and record ``number``.

    :param sink: the sink
    :param source: the attempt
    """
    dead_letters = [found.dead_letter for found in sink.dead_letters([source])]
    return sorted((item.position, _number(item.value)) for item in dead_letters)


def _number(value: bytes | None) -> int:
    row: dict[str, Any] = json.loads(value or b"")
    return int(row["number"])


def _judged(records: pa.RecordBatch, verdicts: Sequence[Verdict]) -> pa.RecordBatch:
    """Return records as Spark's part of the transform outputs them: control columns, verdicts and a marker row.

    :param records: the records as the reader yields them
    :param verdicts: verdict of each record; None for a record that passes
    """
    original = [
        json.dumps({"number": number}) if verdict and verdict != c.FILTERED else None
        for number, verdict in zip(records["number"].to_pylist(), verdicts, strict=True)
    ]
    mark = json.dumps({"read": records.num_rows, "failure": None, "large": []})
    columns = {
        c.BATCH: pa.array([0] * (records.num_rows + 1), pa.int64()),
        POSITION: [*records[POSITION].to_pylist(), None],
        c.MARKER: [*[None] * records.num_rows, mark],
        c.VERDICT: pa.array([*verdicts, None], pa.string()),
        c.ORIGINAL: pa.array([*original, None], pa.string()),
        "number": [*records["number"].to_pylist(), None],
    }
    return pa.record_batch(columns)


REJECTED = f"{ErrorType.TRANSFORM_EVALUATION} no"
