"""Run several pipelines in one process, where they take turns, and return one result for each.

Pipelines of the ``warm`` engine share one standing Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kept_sessions import keep_sessions
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.engines.factory import make_engine, starts_own_spark
from airflow_provider_ckpt.replication.run.lease_renewal import LeaseRenewals
from airflow_provider_ckpt.replication.run.parallel_runs import Limits, ParallelRuns, SharedTurn
from airflow_provider_ckpt.replication.run.replicate import replicate

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.replication.run.summary import RunSummary
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Number of runs that work at once on a shared Spark; a standing driver has task slots for the lanes of four runs."""

_QUANTUM = 100_000
"""Number of records after which a run's turn to execute waves ends if another run waits: a few seconds of work."""

_IN_PROGRESS_EACH = 2
"""Number of runs in progress on a shared Spark for each run that may work at once.

The runs in progress that do not work wait for their turn, or until a retry is due.
"""

_TURNS_EACH = 10
"""Number of turns after which a run pauses if another run waits to begin. In ten turns, a run reads a million records
or more; the second that it takes to open source and sink again matters little then.
"""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of the run of one of several pipelines.

    :param state: ``done``, ``held`` if batches are held and ``run.fail_on_hold`` is true, or ``failed``
    :param error: reason for the state ``held`` or ``failed``; None for ``done``
    :param summary: the run's summary, JSON-ready; None if the run failed
    """

    state: str
    error: str | None = None
    summary: dict[str, Any] | None = None


def run_several(
    setups: Mapping[str, PipelineContext], at_once: int | None = None, *, lanes_each: int | None = None
) -> dict[str, RunResult]:
    """Run several pipelines, which take turns by the records that they read; a run that fails does not stop the others.

    The leases of the runs in progress are renewed together, and a run that ends passes its sessions with PostgreSQL
    databases on to the next one.

    :param setups: by name, such as the pipeline's, each pipeline with its ledger, connections and lease owner, in the
        order in which the runs begin
    :param at_once: largest number of runs that execute waves at a time; None for four, or for one if any of the
        pipelines starts a Spark of its own. On a shared Spark, as many further runs may be in progress while they wait
        for their turn, and a run pauses after ten turns if another run waits to begin
    :param lanes_each: largest number of lanes that a run occupies while another run works or waits for its turn; None
        for no limit
    :return: the result of each run, by the names in ``setups``
    """
    renewals = {ledger: LeaseRenewals(ledger) for ledger in {setup.ledger for setup in setups.values()}}
    own_spark = any(starts_own_spark(setup.pipeline) for setup in setups.values())
    most = at_once or (1 if own_spark else _AT_ONCE)
    if own_spark:
        limits = Limits(most, most, _QUANTUM, lanes_each)
    else:
        limits = Limits(most, most * _IN_PROGRESS_EACH, _QUANTUM, lanes_each, _TURNS_EACH)
    runs = {name: _Run(replace(setup, renewals=renewals[setup.ledger])) for name, setup in setups.items()}
    with keep_sessions():
        results = ParallelRuns(runs, limits).run()
    return {
        name: RunResult("failed", error_text(result)) if isinstance(result, Exception) else result
        for name, result in results.items()
    }


class _Run:
    """Callable that runs one of several pipelines, and logs its error at once.

    :param setup: the pipeline with its ledger, connections and lease owner
    """

    def __init__(self, setup: PipelineContext) -> None:
        self._setup = setup

    def __call__(self, turn: SharedTurn) -> RunResult:
        """Execute the run, and return its result.

        :param turn: the run's permission to execute waves
        :raises Exception: the error with which the run failed, after it was logged
        """
        pipeline = self._setup.pipeline
        try:
            summary = self._replicate(turn)
            while turn.is_paused:
                log.info("%s pauses, so that another pipeline can begin", pipeline.name)
                turn.resume()
                summary = summary.merge(self._replicate(turn))
        except Exception as error:
            log.error("%s failed: %s", pipeline.name, error_text(error))  # no traceback, not even with -v
            raise
        document = summary.to_json()
        held = held_error(pipeline, document)
        return RunResult("held" if held else "done", held, document)

    def _replicate(self, turn: SharedTurn) -> RunSummary:
        """Execute the run until it ends or pauses, and return its summary.

        :param turn: the run's permission to execute waves
        """
        return replicate(replace(self._setup, check=turn.check, turn=turn), make_engine(self._setup.pipeline))


def held_error(pipeline: Pipeline, summary: Mapping[str, Any]) -> str | None:
    """Return an error message if a run left batches held and ``run.fail_on_hold`` is set; else None.

    :param pipeline: the pipeline's declaration
    :param summary: the run's summary
    """
    if Route.HOLD in summary["route"] and pipeline.run.fail_on_hold:
        return f"pipeline {pipeline.name}: batches are held; see: airflow ckpt status {pipeline.name}"
    return None


def error_text(error: Exception) -> str:
    """Return the message of an error, preceded by its class name if it is not an error of this package."""
    return str(error) if isinstance(error, CkptError) else f"{type(error).__name__}: {error}"
