"""Arguments shared by commands, in the form of Airflow's parser. Every ``airflow`` call imports this module."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, Arg

from airflow_provider_ckpt.core.numbers import parse_whole_number
from airflow_provider_ckpt.core.ranges import START


def arg(*flags: str, **options: Any) -> Arg:
    """Create an argument; the options are those of ``argparse``."""
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


def position(text: str) -> int:
    """Parse a source position as tables show it: with or without commas, or ``start``."""
    return START if text == "start" else parse_whole_number(text.replace(",", ""))


FILE = arg("file", help="the pipeline's YAML file")
PIPELINE = arg("pipeline", help="the pipeline's name")
BATCHES = arg("batch", nargs="+", metavar="BATCH", help="partition#seq, as `airflow ckpt inspect` shows it")
DECLARATION = arg(
    "--file", help="read the pipeline's declaration from this YAML file (default: the one that its newest run stored)"
)
PARTITION = arg("--partition", help="the source partition (default: the only one, if there is just one)")
DRY_RUN = arg("--dry-run", action="store_true", help="show what would change, and change nothing")
REASON = arg("--reason", help="reason, stored in the audit log with your name")
REQUIRED_REASON = arg("--reason", required=True, help="reason (required), stored in the audit log with your name")
YES = arg("-y", "--yes", action="store_true", help="do not ask for confirmation")
DEAD_LETTER_SELECTION = (
    arg("--type", action="append", metavar="TYPE", help="only this error type; repeatable"),
    arg(
        "--batch", action="append", metavar="BATCH", help="only this batch (partition#seq); may be given several times"
    ),
    arg("--since", metavar="TIME", help="only those dead-lettered at this time or later (ISO 8601; UTC if no zone)"),
    arg("--until", metavar="TIME", help="only those dead-lettered before this time"),
    arg("--stop-at", type=position, metavar="N", help="only the first N"),
)
"""Arguments that select dead letters."""

QUERY = arg("--query", metavar="TEXT", help="only those that contain this text in their error, bytes or headers")

COMMON = (
    arg(
        "-o",
        "--output",
        help="table, or json or yaml: one document on standard output, everything else on standard error "
        "(default: table)",
        choices=("table", "json", "yaml"),
        metavar="(table, json, yaml)",
        default="table",
    ),
    arg("--ledger", help="the ledger's connection id (default: ckpt_default)", default="ckpt_default"),
    ARG_VERBOSE,
)
"""Arguments of every command."""
