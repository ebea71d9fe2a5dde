"""Define one command of ``airflow ckpt`` for Airflow's parser, with the arguments that all commands share.

The module of a command is imported only when the command is called, because every ``airflow`` call imports the
definitions.
"""

from __future__ import annotations

from airflow.cli.cli_config import ActionCommand, Arg, lazy_load_command

from airflow_provider_ckpt.cli.arguments import COMMON

_COMMANDS = "airflow_provider_ckpt.cli"


def define_command(name: str, function: str, text: str, *args: Arg, more: str | None = None) -> ActionCommand:
    """Return the definition of a command whose module is imported when the command is called.

    :param name: the command's name
    :param function: module and function below ``cli``, such as ``run.run``
    :param text: first line of the command's help
    :param args: arguments, in addition to those of every command
    :param more: further text, shown by the command's own ``--help``; None for no further text
    """
    description = f"{text}. {more}" if more else None
    return ActionCommand(
        name, text, lazy_load_command(f"{_COMMANDS}.{function}"), (*args, *COMMON), description=description
    )
