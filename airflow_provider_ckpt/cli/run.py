"""``airflow ckpt run FILE``: run a pipeline once, without a DAG."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.lag import lag_cells
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.core.routes import Route


def _table(summary: dict[str, Any], out: TextIO) -> None:
    records = summary["records"]
    rows = [
        ("pipeline", summary["pipeline"]),
        ("epoch", summary["epoch"]),
        *(("records " + fate.replace("_", " "), count) for fate, count in records.items()),
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
    """Run the pipeline of ``args.file`` once: replicate all new records, and return the run's summary, JSON-ready.

    :raises FailedError: if batches are held and ``run.fail_on_hold`` is true; it contains the summary
    """
    from airflow_provider_ckpt.cli.open import load_pipeline, make_setup
    from airflow_provider_ckpt.engines.factory import make_engine
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.run.replicate import replicate

    pipeline = load_pipeline(args.file)
    with open_ledger(args.ledger) as ledger:
        summary = replicate(make_setup(pipeline, ledger), make_engine(pipeline))
    document: dict[str, Any] = summary.to_json()
    if Route.HOLD in summary.route and pipeline.run.fail_on_hold:
        raise FailedError(
            f"pipeline {pipeline.name}: batches are held; see: airflow ckpt status {pipeline.name}", document
        )
    return document
