"""Replicate without Spark in a process that kills itself at a chosen moment of a schema change or a wave."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi  # noqa: F401  # imported once, before processes are forked
import pyarrow as pa
import pyiceberg.catalog.sql  # noqa: F401

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core import schema_change
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.schema_version import SchemaVersion, VersionColumn
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication import process_lease_owner
from airflow_provider_ckpt.replication.run import schema_versions
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.lane.fast_path import run_lane
from tests.chaos.schema_storm.targets import TARGETS
from tests.services.replication import DATABASE, connection_to

_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string()}


class Death(StrEnum):
    """Moment at which a worker kills itself."""

    NEVER = "never"
    BEFORE_RECEIPT = "before the receipt of a version"
    AFTER_RECEIPT = "after the receipt of a version"
    AFTER_VERSION = "after a version is in the ledger"
    BEFORE_WAVE = "before a wave"
    AFTER_WAVE = "after a wave"
    BEFORE_ALTER = "before the statement that changes the columns"
    AFTER_ALTER = "after the statement that changes the columns"


class Defect(StrEnum):
    """A rule that is broken on purpose."""

    BARRIER = "a new column does not wait for planned batches"
    CATALOG = "planned batches are read with the columns that the source has now"
    RECEIPT = "a version is recorded without its receipt"


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of one worker.

    :param dsn: database of the source
    :param target: type of the sink
    :param folder: folder of the target, if it is no table of the database
    :param ledger: URL of the ledger
    :param log: file to which an error is written
    :param death: when it dies
    :param defect: rule that is broken
    :param connections: connections of the sink, by id
    """

    dsn: str
    target: str
    folder: Path
    ledger: str
    log: Path
    death: Death = Death.NEVER
    defect: Defect | None = None
    connections: Mapping[str, Connection] = field(default_factory=dict)


class LaneEngine:
    """An engine that executes the lanes of a wave in this process, one after the other."""

    loss_blames_batch = False

    def __init__(self, death: Death) -> None:
        self.started = False
        self._death = death
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        """Keep the job."""
        self._job, self.started = job, True

    def ready(self, check: Check) -> EngineInfo:
        """Return the columns of the job, as two lanes."""
        assert self._job is not None
        return EngineInfo(2, self._job.shape.columns)

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run the lanes; die before or after."""
        assert self._job is not None
        die_at(self._death, Death.BEFORE_WAVE)
        job = self._job.of_wave(wave)
        schema = pa.schema([(POSITION, pa.int64()), *((name, _ARROW[kind]) for name, kind in job.shape.columns)])
        outcomes: list[Outcome] = []
        for lane in range(len(wave.lanes)):
            numbers = pa.RecordBatch.from_arrays([pa.array([lane])], ["id"])
            for rows in run_lane(job, wave, schema, None, iter([numbers])):
                outcomes += [outcome_of(text) for text in rows.column(0).to_pylist()]
        committer = job.committer()
        staged = [outcome for outcome in outcomes if outcome.outcome is AttemptOutcome.STAGED]
        if committer is not None and staged:
            others = [outcome for outcome in outcomes if outcome.outcome is not AttemptOutcome.STAGED]
            outcomes = [*others, *committer.commit(staged)]
        die_at(self._death, Death.AFTER_WAVE)
        return outcomes

    def revive(self) -> bool:
        """Return False: nothing can be started again."""
        return False

    def kill(self) -> None:
        """Do nothing: the lanes have ended."""

    def close(self) -> None:
        """Do nothing: the lanes have ended."""


def outcome_of(text: str) -> Outcome:
    """The outcome in a result row of a lane."""
    from airflow_provider_ckpt.spark.lane import stack_traces

    [outcome], _ = stack_traces.split_outcomes([text])
    return outcome


def die_at(death: Death, moment: Death) -> None:
    """Kill this process if this is its moment."""
    if death is moment:
        os.kill(os.getpid(), signal.SIGKILL)


def work(orders: Orders) -> None:
    """Run the pipeline once; an error goes to the log, and makes the exit status 1."""
    target = TARGETS[orders.target](orders.dsn, orders.folder, orders.connections)
    _arm(target.sink_class, orders.death)
    if target.altering is not None:
        _arm_statement(target.altering, orders.death)
    if orders.defect is not None:
        _break(target.sink_class, orders.defect)
    with Ledger.open(orders.ledger) as ledger:
        owner = process_lease_owner.of_this_process()
        connections = {DATABASE: connection_to(orders.dsn), **target.connections}
        setup = PipelineContext(build(target.document), ledger, connections.__getitem__, owner)
        try:
            replicate(setup, LaneEngine(orders.death))
        except CkptError as error:
            with orders.log.open("a") as log:
                log.write(f"{error}\n")
            raise SystemExit(1) from error


def _arm(sink: Any, death: Death) -> None:
    """Make this process die at a moment of a schema change."""
    apply, record = sink.apply_schema_version, Ledger.record_schema_version

    def applying(self: Any, epoch: int, version: SchemaVersion, steps: Any) -> None:
        die_at(death if version.number > 1 else Death.NEVER, Death.BEFORE_RECEIPT)
        apply(self, epoch, version, steps)
        die_at(death if version.number > 1 else Death.NEVER, Death.AFTER_RECEIPT)

    def recording(self: Ledger, lease: Any, version: SchemaVersion) -> None:
        record(self, lease, version)
        die_at(death if version.number > 1 else Death.NEVER, Death.AFTER_VERSION)

    _replace(sink, "apply_schema_version", applying)
    _replace(Ledger, "record_schema_version", recording)


def _arm_statement(dialect: Any, death: Death) -> None:
    """Make this process die before or after the statement that changes columns."""
    alter = dialect.alter_columns

    def altering(*args: Any) -> None:
        die_at(death, Death.BEFORE_ALTER)
        alter(*args)
        die_at(death, Death.AFTER_ALTER)

    _replace(dialect, "alter_columns", altering)


def _break(sink: Any, defect: Defect) -> None:
    """Break a rule in this process."""
    match defect:
        case Defect.BARRIER:
            decide = schema_change.decide
            _replace(schema_versions, "decide", lambda *args, unresolved: decide(*args, unresolved=False))
        case Defect.CATALOG:
            shape = PostgresSource.version_shape

            def current(self: PostgresSource, version: SchemaVersion) -> RecordShape:
                now = [VersionColumn(each.name, each.number, each.type) for each in self.columns()]
                return shape(self, SchemaVersion(version.number, version.partition, 1, 0, now))

            _replace(PostgresSource, "version_shape", current)
        case Defect.RECEIPT:
            _replace(sink, "apply_schema_version", lambda *_: None)


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)
