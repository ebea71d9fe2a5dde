"""``airflow ckpt adopt``: take over the receipts of a lost ledger."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError


@command(write_document)
def adopt(args: Namespace) -> dict[str, Any]:
    """Take over the receipts of a lost ledger in the sink; return the ids of both ledgers, JSON-ready.

    From then on this ledger continues the pipeline as if it had written these receipts itself. With ``--dry-run``
    nothing is changed.

    :param args: arguments of the command: pipeline, ledger id, declaration, reason, dry run
    :raises ConfigError: if this ledger does not know the pipeline and no declaration is given, the reason is missing,
        or the sink has no receipts of the lost ledger for the pipeline, or already has receipts of this ledger
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import adopt_other_ledger

    reason = given_reason(args, required_by="adopt")
    assert reason is not None
    with open_ledger(args.ledger) as ledger:
        if args.file is None and args.pipeline not in ledger.pipelines():
            raise ConfigError(
                f"this ledger has never run {args.pipeline!r}.", hint="Name the pipeline's declaration with --file."
            )
        setup = context_of(args, ledger)
        before = setup.sink_id
        adopt_other_ledger.adopt(setup, args.ledger_id, actor=actor(), reason=reason, dry_run=args.dry_run)
        return {
            "pipeline": args.pipeline,
            "adopted": not args.dry_run,
            "dry_run": args.dry_run,
            "before": before,
            "after": args.ledger_id,
            "actor": actor(),
            "reason": reason,
        }
