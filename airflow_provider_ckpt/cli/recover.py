"""``airflow ckpt recover``: find records that were never read, and have the next run read them."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.progress import progress
from airflow_provider_ckpt.cli.runner import command


@command(write_document)
def recover(args: Namespace) -> dict[str, Any]:
    """Find records above the low watermark that were never read, and have the next run read them.

    With ``--dry-run`` nothing is changed.

    :return: the ranges that the next run reads, and the ranges and alarms that the command cannot settle, each with the
        reason, JSON-ready
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import recover as recovery

    with open_ledger(args.ledger) as ledger, progress(f"Recovering {args.pipeline}"):
        return recovery.recover(
            context_of(args, ledger), dry_run=args.dry_run, actor=actor(), reason=given_reason(args)
        )
