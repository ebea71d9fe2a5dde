"""Define arguments that several commands share, for Airflow's command line parser.

Every ``airflow`` call imports this module, so its imports must be fast.
"""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, Arg

from airflow_provider_ckpt.core.numbers import parse_whole_number
from airflow_provider_ckpt.core.ranges import START


def arg(*flags: str, **options: Any) -> Arg:
    """Create an argument of a command.

    :param flags: name of a positional argument, or flags such as ``--file``
    :param options: options of ``argparse``'s ``add_argument``
    """
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


def position(text: str) -> int:
    """Return the source position that a text names: a number with or without commas, or ``start``.

    :raises ValueError: if the text has another form
    """
    return START if text == "start" else parse_whole_number(text.replace(",", ""))


def count(text: str) -> int:
    """Return the whole number, at least 1, that a text consists of.

    :raises ValueError: if the text is not a whole number, or the number is less than 1
    """
    number = parse_whole_number(text)
    if number < 1:
        raise ValueError(text)
    return number


FILE = arg("file", help="YAML file of the pipeline")
PIPELINE = arg("pipeline", help="the pipeline's name")
BATCHES = arg("batch", nargs="+", metavar="BATCH", help="a batch, partition#seq as `airflow ckpt inspect` shows it")
DECLARATION = arg(
    "--file", help="YAML file with the pipeline's declaration (default: the declaration that its newest run stored)"
)
PARTITION = arg("--partition", help="the source partition; may be omitted if there is only one")
DRY_RUN = arg("--dry-run", action="store_true", help="show what would change, without changing anything")
REASON = arg("--reason", help="why you do this; stored in the audit log with your name")
REQUIRED_REASON = arg(
    "--reason", required=True, help="why you do this (required); stored in the audit log with your name"
)
YES = arg("-y", "--yes", action="store_true", help="do not ask for confirmation")
DEAD_LETTER_SELECTION = (
    arg("--type", action="append", metavar="TYPE", help="only dead letters of this error type; repeatable"),
    arg(
        "--batch", action="append", metavar="BATCH", help="only dead letters of this batch (partition#seq); repeatable"
    ),
    arg("--since", metavar="TIME", help="only records dead-lettered at this time or later (ISO 8601; UTC if no zone)"),
    arg("--until", metavar="TIME", help="only records dead-lettered before this time"),
    arg("--stop-at", type=position, metavar="N", help="only the first N dead letters, oldest first"),
)
"""Arguments that select dead letters by error type, batch and time of storage, and that limit their number."""

QUERY = arg("--query", metavar="TEXT", help="only dead letters whose error, bytes or headers contain this text")

COMMON = (
    arg(
        "-o",
        "--output",
        help="form of the result (default: table); json and yaml print one document on standard output, and everything "
        "else on standard error",
        choices=("table", "json", "yaml"),
        metavar="(table, json, yaml)",
        default="table",
    ),
    arg("--ledger", help="id of the Airflow connection of the ledger (default: ckpt_default)", default="ckpt_default"),
    ARG_VERBOSE,
)
"""Arguments that every command of ``airflow ckpt`` has: form of the output, ledger, and verbosity."""
