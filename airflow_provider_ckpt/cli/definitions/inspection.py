"""Definitions of the commands that show the content of the ledger and audit it."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def inspection_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``status``, ``inspect`` and ``audit``."""
    what = arg(
        "what",
        nargs="?",
        metavar="BATCH",
        help="a batch (partition#seq) or a partition (default: all unresolved batches)",
    )
    quick = arg("--quick", action="store_true", help="omit the checks that read the whole history")
    sink = arg(
        "--against-sink",
        action="store_true",
        help="also compare the ledger with the sink's receipts, dead letters and rows",
    )
    shared = arg(
        "--shared-target", action="store_true", help="do not count the target's rows, because others write to it too"
    )
    yield define_command(
        "status", "status.show", "Show the state of a pipeline: phase, lease, lag, batches, events", arguments.PIPELINE
    )
    yield define_command(
        "inspect",
        "inspect_.inspect",
        "Show a batch, a partition, or all unresolved batches",
        arguments.PIPELINE,
        what,
        more="A batch is shown with its state, attempts, receipt and newest error.",
    )
    yield define_command(
        "audit",
        "audit.audit",
        "Check the ledger's invariants, and account for every source position",
        *(arguments.PIPELINE, quick, sink, shared, arguments.DECLARATION),
        more="The exit status is 1 if an invariant is violated, or if ledger and sink differ.",
    )
