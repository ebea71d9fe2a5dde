"""``airflow ckpt gc PIPELINE | --all``: delete old history that recovery does not need."""

from __future__ import annotations

import re
from argparse import Namespace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.progress import progress
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MAX_SPAN = timedelta(days=36_500)


def _table(result: dict[str, Any], out: TextIO) -> None:
    write_table([("kept", result["keep"]), ("done", "no, this is a dry run" if result["dry_run"] else "yes")], out)
    counts = result["pipelines"]
    kinds = list(dict.fromkeys(kind for rows in counts.values() for kind in rows))
    lines = [(name, *(rows[kind] for kind in kinds)) for name, rows in counts.items()]
    write_table(lines, out, ("pipeline", *(kind.replace("_", " ") for kind in kinds)))


@command(_table)
def gc(args: Namespace) -> dict[str, Any]:
    """Delete rows of one or all pipelines from the ledger that are older than ``--keep`` and no longer needed.

    The rows are, for example, attempts of resolved batches, and events. Without ``--all``, ``args.pipeline`` is the
    pipeline. Runs may be active meanwhile. With ``--dry-run`` the rows are only counted.

    :return: the numbers of deleted rows by pipeline and kind, JSON-ready
    :raises ConfigError: if ``--keep`` is invalid, or not exactly one of a pipeline and ``--all`` is given
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    keep = _parse_duration(args.keep)
    with open_ledger(args.ledger) as ledger:
        names = _chosen_pipelines(args, ledger)
        counts = {}
        with progress("Collecting", total=len(names)) as step:
            for name in names:
                counts[name] = ledger.garbage_collect(
                    name, keep=keep, actor=actor(), reason=given_reason(args), dry_run=args.dry_run
                )
                step(name)
    return {"keep": args.keep, "dry_run": args.dry_run, "pipelines": counts}


def _chosen_pipelines(args: Namespace, ledger: Ledger) -> list[str]:
    if (args.pipeline is None) != args.all:
        raise ConfigError("name a pipeline, or add --all.", hint="Give one of the two, not both.")
    return ledger.pipelines() if args.all else [args.pipeline]


def _parse_duration(text: str) -> timedelta:
    """Return the duration that the value of ``--keep`` denotes: a number with a unit, such as ``30d``.

    A number without a unit is refused: it would mean seconds, as in a declaration, and ``--keep 30`` would delete
    almost everything.

    :raises ConfigError: if the text is invalid
    """
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip())
    span = None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})
    if span is None or span > _MAX_SPAN:
        raise ConfigError(
            f"--keep {text}: not a duration.",
            hint="Write a number and a unit, such as 12h, 30d or 8w; a hundred years at most.",
        )
    return span
