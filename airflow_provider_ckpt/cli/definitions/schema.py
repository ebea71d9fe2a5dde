"""Define the commands about changes of a source's columns: ``history`` and ``accept``."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def schema_commands() -> Iterable[CLICommand]:
    """Yield the command group ``schema``, with ``history`` and ``accept``."""
    yield GroupCommand(
        "schema",
        "Show the versions of a source's columns, and accept a change of them",
        (
            define_command(
                "history",
                "schema.history",
                "Show all versions of a source's columns: position, decision, actor",
                arguments.PIPELINE,
            ),
            define_command(
                "accept",
                "schema.accept",
                "Let the next run follow a change of the source's columns that the policy freezes",
                arguments.PIPELINE,
                arg(
                    "--fingerprint",
                    metavar="DIGITS",
                    help="the fingerprint of the columns, as --dry-run shows it (required without --dry-run)",
                ),
                *(arguments.REASON, arguments.DRY_RUN, arguments.DECLARATION),
                more="Use it if runs are refused because the source's columns have changed. Look at the change with "
                "--dry-run first. Columns that have changed again since then are not accepted. Needs --reason, except "
                "with --dry-run.",
            ),
        ),
    )
