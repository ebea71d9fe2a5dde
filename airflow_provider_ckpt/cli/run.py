"""``airflow ckpt run FILE...``: run pipelines once, without a DAG."""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.lag import lag_cells
from airflow_provider_ckpt.core.ranges import position_text

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)


def _table(result: dict[str, Any], out: TextIO) -> None:
    if "pipelines" in result:
        _table_of_several(result["pipelines"], out)
    else:
        _table_of_one(result, out)


def _table_of_several(pipelines: list[dict[str, Any]], out: TextIO) -> None:
    """Write one line for each pipeline: the counts of its run, or the error with which it failed."""
    headers = ("pipeline", "state", "delivered", "dead-lettered", "lag", "seconds", "error")
    rows = []
    for item in pipelines:
        summary = item["summary"]
        name = item["pipeline"] or item["file"]
        if summary is None:
            rows.append((name, item["state"], *[None] * 4, item["error"]))
        else:
            records = summary["records"]
            counts = (records["delivered"], records["dead_lettered"], lag_cells(summary["lag"]), summary["seconds"])
            rows.append((name, item["state"], *counts, item["error"]))
    write_table(rows, out, headers)


def _table_of_one(summary: dict[str, Any], out: TextIO) -> None:
    records = summary["records"]
    rows = [
        ("pipeline", summary["pipeline"]),
        ("epoch", summary["epoch"]),
        *(("records " + outcome.replace("_", " "), count) for outcome, count in records.items()),
        ("batches", summary["batches"]),
        (
            "checkpoint",
            {
                part: f"{position_text(moved['before'])} → {position_text(moved['after'])}"
                for part, moved in summary["checkpoint"].items()
            },
        ),
        ("lag", lag_cells(summary["lag"])),
        ("errors", summary["errors"]),
        ("rows in the target", summary["target_rows"]),
        ("route", summary["route"]),
        ("Spark started", summary["spark_started"]),
        ("seconds", summary["seconds"]),
    ]
    write_table(rows, out)


@command(_table)
def run(args: Namespace) -> dict[str, Any]:
    """Run the pipelines of ``args.files`` once: replicate all new records.

    :return: JSON-ready: for one file, the summary of the run; for several files, the result of each under ``pipelines``
    :raises FailedError: if batches are held and ``run.fail_on_hold`` is true, or if any of several pipelines failed;
        the error contains the result
    :raises CkptError: for one file, the error with which its run failed
    """
    return _run_one(args) if len(args.files) == 1 else _run_several(args)


def _run_one(args: Namespace) -> dict[str, Any]:
    from airflow_provider_ckpt.cli.context import load_pipeline, make_context
    from airflow_provider_ckpt.engines.factory import make_engine
    from airflow_provider_ckpt.engines.several_runs import held_error
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.run.replicate import replicate

    pipeline = load_pipeline(args.files[0])
    with open_ledger(args.ledger) as ledger:
        document = replicate(make_context(pipeline, ledger), make_engine(pipeline)).to_json()
    if held := held_error(pipeline, document):
        raise FailedError(held, document)
    return document


def _run_several(args: Namespace) -> dict[str, Any]:
    """Run the pipelines of several files side by side, and return the result of each, in the order of the files.

    :raises FailedError: if any of the pipelines failed; it contains the result
    """
    from airflow_provider_ckpt.cli.context import make_context
    from airflow_provider_ckpt.engines.several_runs import run_several
    from airflow_provider_ckpt.ledger_location import open_ledger

    loaded = _load(args.files)
    pipelines = {file: found for file, found in loaded.items() if not isinstance(found, ConfigError)}
    with open_ledger(args.ledger) as ledger:
        ended = run_several(
            {file: make_context(pipeline, ledger) for file, pipeline in pipelines.items()}, args.at_once
        )
    results = [
        {"file": file, "pipeline": None, "state": "failed", "error": str(found), "summary": None}
        if isinstance(found, ConfigError)
        else {"file": file, "pipeline": found.name, **asdict(ended[file])}
        for file, found in loaded.items()
    ]
    document = {"pipelines": results}
    failed = [str(item["pipeline"] or item["file"]) for item in results if item["state"] != "done"]
    if failed:
        raise FailedError(f"{len(failed)} of {len(results)} pipelines failed: {', '.join(failed)}", document)
    return document


def _load(files: list[str]) -> dict[str, Pipeline | ConfigError]:
    """Return, by path, the pipeline that each file declares, or the error if the file is invalid.

    If several files declare the same pipeline name, each of them gets an error, since two runs of one pipeline in this
    process would share a lease.

    :param files: paths of the files
    """
    from airflow_provider_ckpt.cli.context import load_pipeline

    loaded: dict[str, Pipeline | ConfigError] = {}
    for file in files:
        try:
            loaded[file] = load_pipeline(file)
        except ConfigError as error:
            loaded[file] = error
    by_name: dict[str, list[str]] = {}
    for file, found in loaded.items():
        if not isinstance(found, ConfigError):
            by_name.setdefault(found.name, []).append(file)
    for name, same in by_name.items():
        for file in same if len(same) > 1 else ():
            others = ", ".join(other for other in same if other != file)
            loaded[file] = ConfigError(f"{others} declares pipeline {name!r} as well.", hint="Rename one of them.")
    for file, found in loaded.items():
        if isinstance(found, ConfigError):
            log.error("%s is not run: %s", file, found)
    return loaded
