"""Source that generates its rows and sink that records what it gets, to test how lanes call them.

Both run in Spark's Python workers. The seq of a batch decides what happens to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from airflow_provider_ckpt.config.delivery import DeadLetterQueue
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SinkError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

if TYPE_CHECKING:
    import pyarrow as pa

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

_VERDICTS = {
    Instruction.DELIVER: (AttemptOutcome.DELIVERED, Verdict.DELIVERED),
    Instruction.REJECT: (AttemptOutcome.REJECTED, Verdict.REJECTED),
    Instruction.VOID: (AttemptOutcome.VOID, Verdict.VOID),
}


@dataclass(frozen=True)
class Script:
    """The scripted events, by seq.

    :param empty: batches whose range holds no record
    :param read_fails: batches that cannot be read; True where the source as a whole is gone
    :param write_fails: batches that the sink refuses; True where the sink as a whole is gone
    :param write_breaks: batches at which the sink's driver raises what nobody foresaw
    :param bad: ids that the sink finds bad
    :param nameless: ids of records whose name is null
    :param pause: seconds that each delivery takes
    :param rows: Arrow rows that the reader yields at once
    :param shared: records that have the same position
    :param raw: records are JSON texts, these at their positions and plain ones elsewhere
    """

    empty: Sequence[int] = ()
    read_fails: Mapping[int, bool] = field(default_factory=dict)
    write_fails: Mapping[int, bool] = field(default_factory=dict)
    write_breaks: Sequence[int] = ()
    bad: Sequence[int] = ()
    nameless: Sequence[int] = ()
    pause: float = 0.0
    rows: int = 20_000
    shared: int = 1
    raw: Mapping[int, bytes] | None = None


def plain_record(position: int) -> bytes:
    """The raw record of a position, where the script has no other."""
    return b'{"id": %d, "name": "row %d"}' % (position, position)


class ScriptedReader:
    """Yields a row for each number of the range: ``id``, which is the number, and ``name``."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """The rows of the range; a batch that shall fail does so after its first rows."""
        import pyarrow as pa

        if task.key.seq in self._script.empty:
            return
        for start in range(task.range.start, task.range.end, self._script.rows):
            ids = list(range(start, min(start + self._script.rows, task.range.end)))
            if self._script.raw is None:
                names = [None if n in self._script.nameless else f"row {n}" for n in ids]
                columns = {"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())}
            else:
                columns = {"value": pa.array([self._script.raw.get(n, plain_record(n)) for n in ids], pa.binary())}
            positions = pa.array([at - at % self._script.shared for at in ids], pa.int64())
            yield pa.RecordBatch.from_pydict({POSITION: positions, **columns})
            if task.key.seq in self._script.read_fails:
                raise SourceError("the source ended early", is_outage=self._script.read_fails[task.key.seq])

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return headers that locate a row."""
        return {"source-table": "made up", "source-position": str(position)}

    def close(self) -> None:
        """Do nothing."""


class ScriptedWriter:
    """Appends a line to the log for each batch that it delivers."""

    def __init__(self, script: Script, log: str) -> None:
        self._script = script
        self._log = log

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Write down what the batch holds."""
        script, seq = self._script, task.key.seq
        time.sleep(script.pause)
        if seq in script.write_breaks:
            raise ValueError("nobody foresaw this")
        if seq in script.write_fails:
            raise SinkError("the sink refuses", is_outage=script.write_fails[seq])
        numbers = content.rows.column(ROW_NUMBER).to_pylist()
        start = task.range.start
        refused = ErrorInfo(ErrorType.SINK, "bad row", sqlstate="23514")
        bad = {number: refused for number in numbers if start + number in script.bad}
        if bad:
            return Refused(bad)
        line = {
            "seq": seq,
            "process": os.getpid(),
            "positions": [start + number for number in numbers],
            "columns": content.rows.column_names[1:],
            "names": content.rows.column("name").to_pylist() if "name" in content.rows.column_names else [],
            "dead_letters": [
                [
                    dead_letter.position,
                    dead_letter.error.type,
                    dead_letter.error.message,
                    (dead_letter.value or b"").decode(errors="backslashreplace"),
                ]
                for dead_letter in content.dead_letters
            ],
        }
        with Path(self._log).open("a") as file:
            file.write(json.dumps(line) + "\n")
        outcome, verdict = _VERDICTS[task.instruction]
        counts = checked_counts(content, task, DeadLetterQueue())
        receipt = Receipt(task.key, task.range, verdict, 1, task.attempt, counts, datetime.now(UTC))
        return Outcome(task.key, task.attempt, outcome, receipt)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class ScriptedJob(Job):
    """A job whose reader and writer follow a script.

    :param log: the file that the sink writes down in
    """

    script: Script = field(default_factory=Script)
    log: str = ""

    def reader(self) -> ScriptedReader:
        """A reader for one lane."""
        return ScriptedReader(self.script)

    def writer(self) -> ScriptedWriter:
        """A writer for one lane."""
        return ScriptedWriter(self.script, self.log)


def make_job(log: Path, script: Script, **keys: Any) -> ScriptedJob:
    """A job for a pipeline with further top-level keys."""
    document = {
        "name": "scripted",
        "source": {"type": "postgres", "connection": "db", "table": "made_up", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "db", "table": "target"},
        **keys,
    }
    shape = RecordShape(raw=False, columns=(("id", "bigint"), ("name", "string")))
    if script.raw is not None:
        document["source"] = {"type": "files", "path": "/made/up"}
        shape = RecordShape(raw=True, columns=(("value", "binary"),))
    connections = {"db": Connection("db", "postgres")}
    pipeline = Pipeline.model_validate(document)
    context = SinkContext("ledger", pipeline.name, 1)
    return ScriptedJob(pipeline.document(), context, shape, connections, script=script, log=str(log))


def make_wave(*lanes: Sequence[BatchTask], seconds: float = 60.0) -> Wave:
    """The first wave of a run."""
    return Wave(1, lanes, seconds)


def task(seq: int, start: int, end: int, instruction: Instruction = Instruction.DELIVER, **keys: Any) -> BatchTask:
    """A batch of partition ``p``."""
    return BatchTask(BatchKey(1, "p", seq), Range(start, end), 1, instruction, **keys)


def written(log: Path) -> list[dict[str, Any]]:
    """Return the calls that the sink wrote down, in order."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
