"""``airflow ckpt lease PIPELINE``: show the owner of a pipeline's lease; ``--break`` takes the lease from its owner."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import command


def _table(result: dict[str, Any], out: TextIO) -> None:
    rows = [
        ("pipeline", result["pipeline"]),
        ("lease", "held" if result["held"] else "free"),
        ("owner", result["owner"]),
        *([("its process", "gone")] if result["owner_is_dead"] else []),
        ("epoch", str(result["epoch"])),
        ("until", result["expires"] if result["held"] else None),
    ]
    if result["broken"] is not None:
        nothing = "no, this is a dry run" if result["dry_run"] else "no, nobody holds the lease"
        rows.append(("broken", "yes" if result["broken"] else nothing))
    write_table(rows, out)


@command(_table)
def lease(args: Namespace) -> dict[str, Any]:
    """Return the state of the lease of ``args.pipeline``; with ``--break`` take the lease from its owner first.

    :return: owner, epoch, expiry, and whether the lease is held now, JSON-ready. The owner is None if the lease was
        released; an expired lease still has its owner. Without an owner, ``--break`` changes nothing; otherwise the
        result also has the former owner and the new epoch
    :raises ConfigError: if ``--break`` is given without a reason, or the ledger does not know the pipeline
    """
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.process_lease_owner import is_dead

    reason = given_reason(args, required_by="lease --break" if args.break_lease else None)
    with open_ledger(args.ledger) as ledger:
        found: dict[str, Any] = ledger.status(args.pipeline)["lease"]
        owner = found["owner"]
        result = {
            "pipeline": args.pipeline,
            **found,
            "owner_is_dead": owner is not None and is_dead(owner),
            "broken": None,
            "dry_run": args.dry_run,
        }
        if args.break_lease:
            result["broken"] = owner is not None and not args.dry_run
            if result["broken"]:
                assert reason is not None
                broken = ledger.break_lease(args.pipeline, actor=actor(), reason=reason, epoch=found["epoch"])
                result["held"], result["epoch"] = False, broken.epoch
        return result
