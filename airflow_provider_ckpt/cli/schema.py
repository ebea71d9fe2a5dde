"""``airflow ckpt schema``: show a pipeline's schema versions, and accept changed columns that the policy freezes."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.request_action import action_context, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError


def _history_table(result: dict[str, Any], out: TextIO) -> None:
    rows = [
        (
            item["version"],
            item["position"],
            item["at"],
            item["actor"],
            item["fingerprint"][:12],
            "; ".join(item["decision"]),
        )
        for item in result["versions"]
    ]
    write_table(rows, out, ("version", "from position", "at", "actor", "fingerprint", "decision"))


@command(_history_table)
def history(args: Namespace) -> dict[str, Any]:
    """Return all schema versions of the pipeline ``args.pipeline`` with their columns, oldest first, JSON-ready."""
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        return {"pipeline": args.pipeline, "versions": ledger.schema_history(args.pipeline)}


def _accept_table(result: dict[str, Any], out: TextIO) -> None:
    write_result(result, out)
    write_table([("fingerprint", result["fingerprint"]), *(("change", text) for text in result["changes"])], out)


@command(_accept_table)
def accept(args: Namespace) -> dict[str, Any]:
    """Accept the columns that the source has now, so that the next run replicates them; return the result, JSON-ready.

    A dry run shows the change and its fingerprint. Without ``--dry-run`` the fingerprint is required, and the columns
    are accepted only if they still have this fingerprint.

    :param args: arguments of the command: pipeline, fingerprint, reason, dry run
    :raises ConfigError: if the fingerprint or the reason is missing, or the given text is not a fingerprint
    :raises LedgerStateError: if the columns have another fingerprint by now, or there is nothing to accept
    """
    from airflow_provider_ckpt.replication.actions.accept_schema import (
        SHOWN_DIGITS,
        make_acceptance,
        refuse_other_columns,
    )
    from airflow_provider_ckpt.replication.actions.carry_out_action import apply_in_ledger

    if not args.dry_run and args.fingerprint is None:
        raise ConfigError(
            "schema accept needs the fingerprint of the columns that you have seen.",
            hint="--dry-run shows the change and its fingerprint; give it with --fingerprint.",
        )
    with action_context(args, required_by=None if args.dry_run else "schema accept") as context:
        action = make_acceptance(context.setup())
        if args.fingerprint is not None:
            refuse_other_columns(context.setup(), action, args.fingerprint)
        result = apply_in_ledger(context, action)
    shown = action.fingerprint[:SHOWN_DIGITS]
    again = f'airflow ckpt schema accept {args.pipeline} --fingerprint {shown} --reason "..."'
    following = f"to accept it: {again}" if args.dry_run else "the next run follows the change"
    return {**result, "next": following, "fingerprint": shown, "changes": list(action.changes)}
