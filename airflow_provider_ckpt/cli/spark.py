"""``airflow ckpt spark``: show, start and stop the Spark drivers that the ``warm`` engine keeps on this machine."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from airflow_provider_ckpt.engines.failed_starts import FailedStart
    from airflow_provider_ckpt.engines.standing_drivers import DriverState

_ANY_PIPELINE = {
    "name": "any",
    "source": {"type": "files", "path": "/in"},
    "transform": {"decode": "json", "schema": "value string"},
    "sink": {"type": "files", "format": "jsonl", "path": "/out"},
}
"""Declaration for which ``airflow ckpt spark start`` starts a driver if no file is given.

All pipelines without Spark properties of their own share one driver, so any such declaration will do.
"""


def _table(result: dict[str, Any], out: TextIO) -> None:
    if not result["drivers"]:
        out.write("no standing Spark driver\n")
    for driver in result["drivers"]:
        runs = driver.pop("runs")
        memory = driver.pop("memory_bytes")
        rows = [*driver.items(), *([("memory_mib", memory >> 20)] if memory is not None else [])]
        write_table([(name.replace("_", " "), value) for name, value in rows], out)
        if runs:
            write_table([list(run.values()) for run in runs], out, list(runs[0]))
    if result["failed_starts"]:
        out.write("starts that failed:\n")
        write_table(
            [list(failed.values()) for failed in result["failed_starts"]], out, list(result["failed_starts"][0])
        )


@command(_table)
def status(args: Namespace) -> dict[str, Any]:
    """Return the states of the standing Spark drivers of the current user on this machine, and their failed starts.

    A failed start is listed until a driver with the same key has started; after a day it may no longer be listed.
    """
    del args
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    try:
        found = StandingDrivers(create=False)
    except FileNotFoundError:
        return _document([], [])
    with found as drivers:
        return _document(drivers.states(), drivers.failed_starts())


@command(_table)
def start(args: Namespace) -> dict[str, Any]:
    """Start a standing Spark driver for the pipeline of ``args.file`` if none runs; return the states of all drivers.

    Without a file, the driver serves pipelines that have no Spark properties of their own.

    :raises ConfigError: if runs of this pipeline do not use a standing driver
    :raises EngineError: if the driver cannot be started
    """
    from airflow_provider_ckpt.cli.context import load_pipeline
    from airflow_provider_ckpt.config.load import build
    from airflow_provider_ckpt.engines import warm
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    pipeline = load_pipeline(args.file) if args.file else build(_ANY_PIPELINE)
    if pipeline.run.engine != "warm" or not warm.is_enabled(pipeline):
        raise ConfigError(
            "runs of this pipeline use no standing Spark driver on this machine.",
            hint="Write run.engine: warm, with a local master, and leave [ckpt] warm_spark at True. In the pods of "
            "KubernetesExecutor every run starts its own Spark.",
        )
    try:
        with StandingDrivers(create=True) as drivers:
            warm.connect_or_start(drivers, pipeline).close()
            return _document(drivers.states(), drivers.failed_starts())
    except EngineError as error:
        raise EngineError(f"no standing Spark driver can be started: {error.message}.", hint=error.hint) from error


@command(_table)
def stop(args: Namespace) -> dict[str, Any]:
    """Stop every standing Spark driver of the current user, and return the states of the drivers before that.

    A driver ends after its current runs; with ``--force`` at once.
    """
    from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers

    try:
        found = StandingDrivers(create=False)
    except FileNotFoundError:
        return _document([], [])
    with found as drivers:
        return _document(drivers.stop(at_once=args.force), drivers.failed_starts())


def _document(states: Iterable[DriverState], failed: Iterable[FailedStart]) -> dict[str, Any]:
    silent = {"answers": False, "runs": [], "memory_bytes": None}
    return {
        "drivers": [{"key": state.key, **(silent if state.reported is None else state.reported)} for state in states],
        "failed_starts": [
            {"key": item.key, "time": item.time.isoformat(), "log": str(item.log), "reason": item.reason}
            for item in failed
        ],
    }
