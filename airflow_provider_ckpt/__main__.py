"""``python -m airflow_provider_ckpt``: run the commands of ``airflow ckpt`` if Airflow lacks them, as 3.1 does."""

from __future__ import annotations

import sys


def add_commands() -> None:
    """Add the command group ``ckpt`` to Airflow's command line, unless Airflow has already added it."""
    from airflow.cli import cli_parser

    from airflow_provider_ckpt.cli.commands import get_ckpt_commands

    for command in get_ckpt_commands():
        cli_parser.ALL_COMMANDS_DICT.setdefault(command.name, command)


def main() -> None:
    """Run ``airflow ckpt`` with the arguments of this process."""
    from airflow.__main__ import main as airflow_main

    add_commands()
    sys.argv[:] = ["airflow", "ckpt", *sys.argv[1:]]
    airflow_main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
