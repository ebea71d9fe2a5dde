"""``airflow ckpt spark``: the Sparks that stay on this machine between runs with the ``warm`` engine."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from airflow_provider_ckpt.engines.standing_drivers import DriverState

_ANY_PIPELINE = {
    "name": "any",
    "source": {"type": "files", "path": "/in"},
    "transform": {"decode": "json", "schema": "value string"},
    "sink": {"type": "files", "format": "jsonl", "path": "/out"},
}
"""Stands for the pipelines without Spark properties of their own."""


def _table(result: dict[str, Any], out: TextIO) -> None:
    if not result["drivers"]:
        out.write("no Spark is warm\n")
    for driver in result["drivers"]:
        runs = driver.pop("runs")
        memory = driver.pop("memory_bytes")
        rows = [*driver.items(), *([("memory_mib", memory >> 20)] if memory is not None else [])]
        write_table([(name.replace("_", " "), value) for name, value in rows], out)
        if runs:
            write_table([list(run.values()) for run in runs], out, list(runs[0]))


@command(_table)
def status(args: Namespace) -> dict[str, Any]:
    """Return the state of each Spark that the current user keeps warm on this machine."""
    del args
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    try:
        with StandingDrivers(create=False) as drivers:
            return _document(drivers.states())
    except FileNotFoundError:
        return _document([])


@command(_table)
def start(args: Namespace) -> dict[str, Any]:
    """Start a Spark with the properties of ``args.file`` if none is warm, and return the state of every warm Spark."""
    from airflow_provider_ckpt.cli.open import load_pipeline
    from airflow_provider_ckpt.config.load import build
    from airflow_provider_ckpt.engines import warm
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    pipeline = load_pipeline(args.file) if args.file else build(_ANY_PIPELINE)
    if pipeline.run.engine != "warm" or not warm.is_enabled(pipeline):
        raise ConfigError(
            "runs of this pipeline use no warm Spark on this machine.",
            hint="They do with run.engine: warm, a local master, and [ckpt] warm_spark, outside of KubernetesExecutor.",
        )
    try:
        with StandingDrivers(create=True) as drivers:
            warm.connect_or_start(drivers, pipeline, threading.Event()).close()
            return _document(drivers.states())
    except EngineError as error:
        raise EngineError(f"no Spark can be started: {error.message}.") from error


@command(_table)
def stop(args: Namespace) -> dict[str, Any]:
    """Stop every Spark that the current user keeps warm, and return the states before the stop."""
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    try:
        with StandingDrivers(create=False) as drivers:
            return _document(drivers.stop(at_once=args.force))
    except FileNotFoundError:
        return _document([])


def _document(states: Iterable[DriverState]) -> dict[str, Any]:
    silent = {"answers": False, "runs": [], "memory_bytes": None}
    return {"drivers": [{"key": state.key, **(silent if state.told is None else state.told)} for state in states]}
