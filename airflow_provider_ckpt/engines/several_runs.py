"""Run several pipelines in one process, some at a time, and return one result for each.

Pipelines of the ``warm`` engine share one standing Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.engines.factory import make_engine, starts_own_spark
from airflow_provider_ckpt.replication.run.lease_renewal import LeaseRenewals
from airflow_provider_ckpt.replication.run.parallel_runs import ParallelRuns
from airflow_provider_ckpt.replication.run.replicate import replicate

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.replication.run.engine_protocol import Check
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Number of runs at once on a shared Spark: the number whose lanes a standing driver executes at once."""


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
    """Run several pipelines, in the given order and some at a time; a run that fails does not stop the others.

    The leases of the runs in progress are renewed together.

    :param setups: by pipeline name or another label, the pipeline with its ledger, connections and lease owner
    :param at_once: largest number of runs in progress at a time; None for four, or one if any of the pipelines starts a
        Spark of its own
    :param lanes_each: largest number of lanes that a run occupies while other runs are unfinished; None for no limit
    :return: the result of each run, by the same labels
    """
    renewals = {ledger: LeaseRenewals(ledger) for ledger in {setup.ledger for setup in setups.values()}}
    own_spark = any(starts_own_spark(setup.pipeline) for setup in setups.values())

    def most_lanes() -> int | None:
        return lanes_each if runs.unfinished > 1 else None

    runs = ParallelRuns(
        {
            name: _Run(replace(setup, renewals=renewals[setup.ledger], most_lanes=most_lanes))
            for name, setup in setups.items()
        },
        at_once or (1 if own_spark else _AT_ONCE),
    )
    return {
        name: RunResult("failed", error_text(result)) if isinstance(result, Exception) else result
        for name, result in runs.run().items()
    }


class _Run:
    """Callable that runs one of several pipelines, and logs its error at once.

    :param setup: the pipeline with its ledger, connections and lease owner
    """

    def __init__(self, setup: PipelineContext) -> None:
        self._setup = setup

    def __call__(self, check: Check) -> RunResult:
        """Execute the run, and return its result.

        :param check: function that raises an error if the run must stop
        :raises Exception: the error with which the run failed, after it was logged
        """
        pipeline = self._setup.pipeline
        try:
            summary = replicate(replace(self._setup, check=check), make_engine(pipeline)).to_json()
        except Exception as error:
            log.error("%s failed: %s", pipeline.name, error_text(error))  # no traceback, not even with -v
            raise
        held = held_error(pipeline, summary)
        return RunResult("held" if held else "done", held, summary)


def held_error(pipeline: Pipeline, summary: Mapping[str, Any]) -> str | None:
    """Return an error message if a run left batches held and ``run.fail_on_hold`` is set; else None.

    :param pipeline: the pipeline's declaration
    :param summary: the run's summary
    """
    if Route.HOLD in summary["route"] and pipeline.run.fail_on_hold:
        return f"pipeline {pipeline.name}: batches are held; see: airflow ckpt status {pipeline.name}"
    return None


def error_text(error: Exception) -> str:
    """Return an error as one text, with its type unless it is an error of this package."""
    return str(error) if isinstance(error, CkptError) else f"{type(error).__name__}: {error}"
