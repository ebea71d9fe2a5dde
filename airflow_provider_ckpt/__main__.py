"""``python -m airflow_provider_ckpt``: ``airflow ckpt`` for Airflow 3.1, which takes no commands from providers."""

from __future__ import annotations

import sys


def add_commands() -> None:
    """Add the group ``ckpt`` to Airflow's command line, unless Airflow has taken it from the provider."""
    from airflow.cli import cli_parser

    from airflow_provider_ckpt.cli.commands import get_ckpt_commands

    for command in get_ckpt_commands():
        cli_parser.ALL_COMMANDS_DICT.setdefault(command.name, command)


def main() -> None:
    """Run Airflow's command line with the group ``ckpt`` and the arguments of this process."""
    from airflow.__main__ import main as airflow_main

    add_commands()
    sys.argv[:] = ["airflow", "ckpt", *sys.argv[1:]]
    airflow_main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
