"""``airflow ckpt audit PIPELINE``: check the ledger's invariants and that every position is accounted for.

With ``--against-sink`` the ledger is also compared with the sink.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.progress import progress
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.ranges import Range

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger

_ALWAYS_SHOWN = ("from", "checkpoint", "planned_to")
"""Columns that the audit's table always has. Any other column is left out if all of its values are 0."""


def _table(result: dict[str, Any], out: TextIO) -> None:
    rows = [("pipeline", result["pipeline"]), ("audit passed", result["ok"])]
    for name, value in result["checked"].items():
        rows.append((f"checked {name}", len(value) if isinstance(value, list) else value))
    write_table(rows, out)
    accounted = result["accounted"]
    columns = dict.fromkeys(
        name for line in accounted.values() for name, value in line.items() if value or name in _ALWAYS_SHOWN
    )
    lines = [(partition, *(line.get(name) for name in columns)) for partition, line in accounted.items()]
    write_table(lines, out, ("partition", *(name.replace("_", " ") for name in columns)))
    if result["violations"]:
        broken = [(v["name"], v["partition"], v["position"], v["message"]) for v in result["violations"]]
        write_table(broken, out, ("invariant", "partition", "position", "what was found"))
    if "sink" in result:
        _sink_table(result["sink"], out)


def _sink_table(sink: dict[str, Any], out: TextIO) -> None:
    compared = [(name.replace("_", " "), value) for name, value in sink["compared"].items() if value is not None]
    write_table([("ledger and sink agree", sink["agrees"]), *compared], out)
    _accepted_table(sink["accepted_losses"], out)
    if sink["differences"]:
        differ = [(d["kind"], d["batch"] or d["partition"], d["message"], d["to_do"]) for d in sink["differences"]]
        write_table(differ, out, ("difference", "batch", "what was found", "what to do"))


def _accepted_table(accepted: dict[str, Any], out: TextIO) -> None:
    if accepted["rows_missing"]:
        write_table([("rows missing when the sink was accepted", accepted["rows_missing"])], out)
    lines = [
        (
            part["partition"],
            part["generation"],
            str(Range(*part["range"])),
            part["batches"],
            part["counts"]["delivered"],
        )
        for part in accepted["lost"]
    ]
    if lines:
        write_table(lines, out, ("accepted loss", "generation", "positions", "receipts", "delivered"))


@command(_table)
def audit(args: Namespace) -> dict[str, Any]:
    """Check the pipeline ``args.pipeline`` in the ledger; with ``--against-sink`` also compare it with its sink.

    :return: the numbers of checked objects, and the violations and differences that were found, JSON-ready
    :raises FailedError: if an invariant is violated, or ledger and sink differ; it contains the result
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        with progress(f"Auditing {args.pipeline}"):
            result: dict[str, Any] = ledger.audit(args.pipeline, quick=args.quick)
        if args.against_sink:
            result["sink"] = _audit_sink(args, ledger)
    problems = _violation_problems(result["violations"]) + _difference_problems(
        result.get("sink", {}).get("differences", [])
    )
    if problems:
        result["ok"] = False
        raise FailedError(f"pipeline {args.pipeline}: {'; '.join(problems)}", result)
    return result


def _audit_sink(args: Namespace, ledger: Ledger) -> dict[str, Any]:
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.replication.observe.sink_audit import STEPS, audit_sink

    setup = context_of(args, ledger)
    with progress(f"Comparing the ledger with the sink of {args.pipeline}", STEPS) as tell:
        return audit_sink(setup, tell, shared=args.shared_target)


def _violation_problems(violations: list[dict[str, Any]]) -> list[str]:
    names = sorted({violation["name"] for violation in violations})
    if not names:
        return []
    return [
        f"{len(violations)} violations of {', '.join(names)}. Drain the pipeline, copy the ledger, and see the runbook"
    ]


def _difference_problems(differences: list[dict[str, Any]]) -> list[str]:
    names = sorted({difference["kind"] for difference in differences})
    return [f"ledger and sink differ in {len(differences)} places ({', '.join(names)})"] if names else []
