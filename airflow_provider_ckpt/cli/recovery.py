"""``airflow ckpt recover`` and ``adopt``: find missing records, and take over the receipts of a lost ledger."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.progress import progress
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.setup import PipelineContext


@command(write_document)
def recover(args: Namespace) -> dict[str, Any]:
    """Find records above the low watermark that were never read, and have the next run read them.

    The function returns the ranges that are read again and those that are left, JSON-ready. With ``--dry-run`` nothing
    is changed.
    """
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import fenced_actions

    with open_ledger(args.ledger) as ledger, progress(f"Recovering {args.pipeline}"):
        return fenced_actions.recover(
            setup_of(args, ledger), dry_run=args.dry_run, actor=actor(), reason=given_reason(args)
        )


@command(write_document)
def adopt(args: Namespace) -> dict[str, Any]:
    """Take over the receipts that a lost ledger has written to the sink; return the ids of both ledgers, JSON-ready.

    From then on this ledger continues the pipeline with these receipts. With ``--dry-run`` nothing is changed.
    """
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import fenced_actions

    reason = given_reason(args, required_by="adopt")
    assert reason is not None
    with open_ledger(args.ledger) as ledger:
        if args.file is None and args.pipeline not in ledger.pipelines():
            raise ConfigError(
                f"this ledger has never run {args.pipeline!r}.", hint="Name the pipeline's declaration with --file."
            )
        setup = setup_of(args, ledger)
        before = setup.sink_id
        if args.dry_run:
            _require_receipts(setup, args.ledger_id)
        else:
            fenced_actions.adopt(setup, args.ledger_id, actor=actor(), reason=reason)
        return {
            "pipeline": args.pipeline,
            "adopted": not args.dry_run,
            "dry_run": args.dry_run,
            "before": before,
            "after": args.ledger_id,
            "actor": actor(),
            "reason": reason,
        }


def _require_receipts(setup: PipelineContext, ledger_id: str) -> None:
    """Raise an error if the sink holds no receipts of another ledger for this pipeline; nothing is changed.

    :param setup: context of the pipeline
    :param ledger_id: id of the other ledger
    :raises ConfigError: if there are none; the hint names the ledgers whose receipts the sink holds
    """
    from airflow_provider_ckpt.replication.setup import OpenConnectors

    opened = OpenConnectors(setup)
    try:
        ledgers = opened.sink.claims().ledgers
    finally:
        opened.close()
    if ledger_id not in ledgers:
        raise ConfigError(
            f"the sink holds no receipts of ledger {ledger_id} for this pipeline.",
            pipeline=setup.pipeline.name,
            hint=f"It holds receipts of these ledgers: {', '.join(sorted(ledgers)) or 'none'}.",
        )
