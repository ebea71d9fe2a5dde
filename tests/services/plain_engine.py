"""Engine without Spark: lanes run as threads of the test's process, so that a killed driver restarts at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo
from airflow_provider_ckpt.spark.lane.fast_path import run_lane
from airflow_provider_ckpt.spark.lane.stack_traces import split_outcomes

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
    from airflow_provider_ckpt.spark.job import Job

_LANES = 2
_PAUSE = 0.01
_ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Arrow type of each Spark SQL type that the tests' tables have."""


class PlainEngine:
    """Engine for pipelines without a transform; see :class:`~.engine_protocol.Engine`."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self.started = False
        self.loss_blames_batch = False

    def start(self, job: Job) -> None:
        """Store the job."""
        self._job = job
        self.started = True

    def ready(self, check: Check) -> EngineInfo:
        """Return two lanes, and the source's columns."""
        return EngineInfo(_LANES, self._given.shape.columns)

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run each lane of a wave in a thread, and commit what they have staged."""
        columns = [(name, _ARROW_TYPES[kind]) for name, kind in self._given.shape.columns]
        schema = pa.schema([(POSITION, pa.int64()), *columns])

        def run(lane: int) -> list[str]:
            numbers = pa.RecordBatch.from_pydict({"id": [lane]})
            found = run_lane(self._given, wave, schema, None, iter([numbers]))
            return [row.as_py() for batch in found for row in batch[0]]

        with ThreadPoolExecutor(_LANES) as pool:
            lanes = [pool.submit(run, lane) for lane in range(len(wave.lanes))]
            while wait(lanes, _PAUSE).not_done:
                check()
        outcomes, deferred = split_outcomes([row for lane in lanes for row in lane.result()])
        assert not deferred
        committer = self._given.committer()
        return outcomes if committer is None else committer.commit(outcomes)

    def revive(self) -> bool:
        """Return False: there is nothing to start again."""
        return False

    def kill(self) -> None:
        """Do nothing; the lanes end by themselves."""

    def close(self) -> None:
        """Do nothing."""
        self.started = False

    @property
    def _given(self) -> Job:
        assert self._job is not None
        return self._job
