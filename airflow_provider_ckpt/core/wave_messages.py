"""Define the messages between a run and Spark: a wave of batches goes to Spark, and outcomes of attempts come back.

Messages are plain values with a JSON form, so that they can be sent by file, pickle or socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One attempt of a batch, as a lane receives it.

    :param key: the batch
    :param range: the source positions of the batch
    :param attempt: the number of this attempt, from 1
    :param instruction: whether to deliver the batch, reject it or void it
    :param bound: the source's closed bound when the batch was planned: the position below which no record could appear
        any more; None if the source has none
    :param detail: values that the source's reader needs to find the range, for example a file's path and byte range
    :param error: the newest error of an earlier attempt, which explains the dead letters if the batch is rejected; None
        if there was none
    :param finished: number of failures that lanes reported before; attempts that never ran are not counted
    :param is_last_attempt: whether the batch's attempts are used up if this one fails
    :param schema: number of the schema version under which the batch is read; None if the pipeline has no versions
    """

    key: BatchKey
    range: Range
    attempt: int
    instruction: Instruction = Instruction.DELIVER
    bound: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: ErrorInfo | None = None
    finished: int = 0
    is_last_attempt: bool = False
    schema: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "key": self.key.to_json(),
            "range": [self.range.start, self.range.end],
            "attempt": self.attempt,
            "instruction": self.instruction.value,
            "bound": self.bound,
            "detail": dict(self.detail),
            "error": self.error.to_json() if self.error else None,
            "finished": self.finished,
            "last": self.is_last_attempt,
            "schema": self.schema,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchTask:
        """Restore an attempt from the output of :meth:`to_json`, in the process that executes it."""
        return cls(
            BatchKey.from_json(data["key"]),
            Range(*data["range"]),
            data["attempt"],
            Instruction(data["instruction"]),
            data["bound"],
            data["detail"],
            ErrorInfo.from_json(data["error"]) if data["error"] else None,
            data["finished"],
            data["last"],
            data["schema"],
        )


@dataclass(frozen=True, slots=True)
class Wave:
    """The batches of one Spark job, in lanes; one Spark task executes a lane's batches in order.

    :param number: number of the wave in its run, from 1
    :param lanes: the batches of each lane
    :param seconds: seconds from the start of the wave after which a lane starts no further batch
    :param shape: JSON form of the columns that readers yield under the batches' schema version; None if the batches
        have no schema version, so that readers yield the columns of the run's job
    """

    number: int
    lanes: Sequence[Sequence[BatchTask]]
    seconds: float
    shape: Mapping[str, Any] | None = None

    @property
    def tasks(self) -> list[BatchTask]:
        """The attempts of all lanes in one list, lane by lane."""
        return [task for lane in self.lanes for task in lane]

    def to_json(self) -> dict[str, Any]:
        """Return the wave as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "number": self.number,
            "seconds": self.seconds,
            "lanes": [[task.to_json() for task in lane] for lane in self.lanes],
            "shape": None if self.shape is None else dict(self.shape),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Wave:
        """Restore a wave from the output of :meth:`to_json`."""
        lanes = [[BatchTask.from_json(task) for task in lane] for lane in data["lanes"]]
        return cls(data["number"], lanes, data["seconds"], data["shape"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one attempt, as a lane or a two-phase sink's commit reports it.

    :param key: the batch
    :param attempt: the number of the attempt
    :param outcome: the outcome, such as ``delivered``, ``failed`` or ``staged``
    :param receipt: the sink's receipt, claimed by this attempt or by an earlier one; None unless the outcome is a
        verdict
    :param receipt_existed: whether the receipt existed before this attempt
    :param error: the error; None unless the attempt failed
    :param dead_letters: number of dead letters by error type
    :param staged: the data that a two-phase sink needs for its commit; None unless the outcome is ``staged``
    :param seconds: wall time that the lane spent on the batch
    """

    key: BatchKey
    attempt: int
    outcome: AttemptOutcome
    receipt: Receipt | None = None
    receipt_existed: bool = False
    error: ErrorInfo | None = None
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    staged: Mapping[str, Any] | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "key": self.key.to_json(),
            "attempt": self.attempt,
            "outcome": self.outcome.value,
            "receipt": self.receipt.to_json() if self.receipt else None,
            "found": self.receipt_existed,
            "error": self.error.to_json() if self.error else None,
            "dead_letters": dict(self.dead_letters),
            "staged": self.staged,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Restore an outcome from the output of :meth:`to_json`."""
        return cls(
            BatchKey.from_json(data["key"]),
            data["attempt"],
            AttemptOutcome(data["outcome"]),
            Receipt.from_json(data["receipt"]) if data["receipt"] else None,
            data["found"],
            ErrorInfo.from_json(data["error"]) if data["error"] else None,
            data["dead_letters"],
            data["staged"],
            data["seconds"],
        )
