"""``airflow ckpt plan FILE``: show a preview of a pipeline's next run, without changing anything."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.runner import command


@command(write_document)
def plan(args: Namespace) -> dict[str, Any]:
    """Return a preview of the next run of ``args.file``, JSON-ready; nothing is changed.

    It contains the number of batches that the run would plan, the number of batches that wait already, and the branch
    of the DAG that the run would take if no record failed: ``hold`` if batches are held, else ``done``.
    """
    from airflow_provider_ckpt.cli.context import load_pipeline, make_context
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.observe.preview import preview

    with open_ledger(args.ledger) as ledger:
        return preview(make_context(load_pipeline(args.file), ledger))
