"""``airflow ckpt status PIPELINE``: where a pipeline stands, from the ledger alone."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.command import command
from airflow_provider_ckpt.cli.output import write_table


def _table(status: dict[str, Any], out: TextIO) -> None:
    lease = status["lease"]
    totals = _records(status)
    rows = [
        ("pipeline", status["pipeline"]),
        ("phase", status["phase"]),
        ("generation", str(status["generation"])),
        ("lease", f"{lease['owner']} until {lease['expires']}" if lease["held"] else "free"),
        ("epoch", str(lease["epoch"])),
        *((f"records {fate}", count) for fate, count in totals.items()),
        ("dead letters", status["dead_letters"]),
        ("batches not resolved", status["batches"]),
    ]
    write_table(rows, out)
    partitions = status["partitions"]
    write_table(
        [(part["id"], part["committed"], part["planned_end"], part["bound"], part["batches"]) for part in partitions],
        out,
        ("partition", "checkpoint", "planned to", "source known to", "batches"),
    )
    stuck = [(kind, item) for kind in ("held", "waiting") for item in status[kind]]
    if stuck:
        write_table(
            [(kind, item["batch"], item["attempts"], (item["error"] or {}).get("message")) for kind, item in stuck],
            out,
            ("", "batch", "attempts", "error"),
        )


def _records(status: dict[str, Any]) -> dict[str, int]:
    """Records below the checkpoint, by fate: each receipt line is start, end, batches and the four counts."""
    fates = ("read", "delivered", "filtered", "dead lettered")
    lines = [line for lines in status["receipts"].values() for line in lines]
    return {fate: sum(line[3 + index] for line in lines) for index, fate in enumerate(fates)}


@command(_table)
def show(args: Namespace) -> dict[str, Any]:
    """What the ledger knows of a pipeline."""
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        return ledger.status(args.pipeline)
