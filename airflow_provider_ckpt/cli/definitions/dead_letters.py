"""Define the commands of ``airflow ckpt dlq``, which show, replay and discard dead letters."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def dead_letter_commands() -> Iterable[CLICommand]:
    """Yield the command group ``dlq``, with ``list``, ``show``, ``export``, ``replay`` and ``discard``."""
    every = arg("--all", action="store_true", help="include dead letters that were replayed or discarded")
    to = arg("--to", required=True, metavar="FILE", help="the file to write; it must not exist yet")
    looking = (arguments.PIPELINE, *arguments.DEAD_LETTER_SELECTION, every)
    yield GroupCommand(
        "dlq",
        "Show, replay and discard dead letters",
        (
            define_command(
                "list",
                "dlq.list_all",
                "Show the numbers of dead letters and their states",
                *looking,
                arguments.DECLARATION,
            ),
            define_command(
                "show",
                "dlq.show",
                "Show dead letters, with their original bytes and errors",
                *looking,
                arguments.QUERY,
                arguments.DECLARATION,
            ),
            define_command(
                "export",
                "dlq.export",
                "Write dead letters to a file, as JSON lines",
                to,
                *looking,
                arguments.QUERY,
                arguments.DECLARATION,
            ),
            define_command(
                "replay",
                "dlq.replay",
                "Send dead letters again",
                *(
                    arguments.PIPELINE,
                    *arguments.DEAD_LETTER_SELECTION,
                    arguments.QUERY,
                    arguments.REASON,
                    arguments.DRY_RUN,
                    arguments.DECLARATION,
                ),
                more="The next run sends them in a side partition, through the pipeline as it is declared then. A "
                "record that fails again is parked again.",
            ),
            define_command(
                "discard",
                "dlq.discard",
                "Give dead letters up: mark them as discarded; the sink still stores them",
                *(
                    arguments.PIPELINE,
                    *arguments.DEAD_LETTER_SELECTION,
                    arguments.QUERY,
                    arguments.REQUIRED_REASON,
                    arguments.DRY_RUN,
                    arguments.DECLARATION,
                ),
            ),
        ),
    )
