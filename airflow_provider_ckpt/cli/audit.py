"""``airflow ckpt audit PIPELINE``: whether every invariant holds, and where every position is."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.command import FailedError, command
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.progress import progress

_ALWAYS = ("from", "checkpoint", "planned_to")
"""Columns that are shown even where all of them are 0."""


def _table(result: dict[str, Any], out: TextIO) -> None:
    rows = [("pipeline", result["pipeline"]), ("everything holds", result["ok"])]
    for name, value in result["checked"].items():
        rows.append((f"checked {name}", len(value) if isinstance(value, list) else value))
    write_table(rows, out)
    accounted = result["accounted"]
    told = dict.fromkeys(
        name for line in accounted.values() for name, value in line.items() if value or name in _ALWAYS
    )
    lines = [(partition, *(line.get(name) for name in told)) for partition, line in accounted.items()]
    write_table(lines, out, ("partition", *(name.replace("_", " ") for name in told)))
    if result["violations"]:
        broken = [(v["name"], v["partition"], v["position"], v["message"]) for v in result["violations"]]
        write_table(broken, out, ("invariant", "partition", "position", "what was found"))


@command(_table)
def audit(args: Namespace) -> dict[str, Any]:
    """Check, and fail if anything does not hold."""
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger, progress(f"Auditing {args.pipeline}"):
        result: dict[str, Any] = ledger.audit(args.pipeline, quick=args.quick)
    if not result["ok"]:
        names = sorted({violation["name"] for violation in result["violations"]})
        raise FailedError(
            f"pipeline {args.pipeline}: {len(result['violations'])} violations of {', '.join(names)}. "
            "Drain it, keep a copy of the ledger, and see the runbook",
            result,
        )
    return result
