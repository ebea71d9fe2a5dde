"""``airflow ckpt pipeline list``, ``show`` and ``delete``: manage the pipelines in the ledger."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.identity import actor, confirm, given_reason
from airflow_provider_ckpt.cli.output import write_document, write_table, write_yaml
from airflow_provider_ckpt.cli.runner import command


def _list(result: list[dict[str, Any]], out: TextIO) -> None:
    rows = [
        (
            item["pipeline"],
            item["phase"],
            item["lease"] or "free",
            item["partitions"],
            item["batches"],
            item["dead_letters"],
        )
        for item in result
    ]
    write_table(
        rows, out, ("pipeline", "phase", "lease", "partitions", "batches beyond the checkpoint", "dead letters")
    )


@command(_list)
def list_all(args: Namespace) -> list[dict[str, Any]]:
    """Return phase, lease owner, and numbers of partitions, batches and dead letters of every pipeline.

    The owner is None if the lease is not held. Only batches beyond the checkpoint are counted, by state.
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        return [_line(ledger.status(name)) for name in ledger.pipelines()]


def _line(status: dict[str, Any]) -> dict[str, Any]:
    lease = status["lease"]
    return {
        "pipeline": status["pipeline"],
        "phase": status["phase"],
        "generation": status["generation"],
        "lease": lease["owner"] if lease["held"] else None,
        "partitions": len(status["partitions"]),
        "batches": status["batches"],
        "dead_letters": sum(status["dead_letters"].values()),
    }


def _show(result: dict[str, Any], out: TextIO) -> None:
    write_document({name: result[name] for name in ("pipeline", "phase", "ledger", "sink_id")}, out)
    partitions = result["partitions"]
    write_table(
        [
            (part["id"], str(part["generation"]), part["base"], part["committed"], part["identity"])
            for part in partitions
        ],
        out,
        ("partition", "generation", "base", "checkpoint", "started on"),
    )
    if result["declaration"] is None:
        out.write("It has no declaration: no run has stored one yet.\n")
    else:
        write_yaml(result["declaration"], out)


@command(_show)
def show(args: Namespace) -> dict[str, Any]:
    """Return phase and partitions of the pipeline ``args.pipeline``, and the declaration that its newest run stored.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        status = ledger.status(args.pipeline)
        keys = ("pipeline", "ledger", "phase", "generation", "partitions", "declaration")
        return {name: status[name] for name in keys} | {"sink_id": ledger.sink_id(args.pipeline)}


@command(write_document)
def delete(args: Namespace) -> dict[str, Any]:
    """Delete the pipeline ``args.pipeline`` from the ledger after a confirmation; its audit log remains.

    The sink is not changed. If a run acquires the lease after the data was shown to the user, nothing is deleted.

    :return: the data that was deleted, JSON-ready
    :raises ConfigError: if the reason is missing, the user does not confirm, or the ledger does not know the pipeline
    :raises LedgerStateError: if a run acquires the lease after the data was shown to the user
    """
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions.ledger_commands import data_to_lose
    from airflow_provider_ckpt.replication.process_lease_owner import is_dead

    reason = given_reason(args, required_by="pipeline delete")
    assert reason is not None
    with open_ledger(args.ledger) as ledger:
        epoch = ledger.status(args.pipeline)["lease"]["epoch"]  # before the data: later runs are noticed
        result = data_to_lose(ledger, args.pipeline) | {
            "deleted": not args.dry_run,
            "dry_run": args.dry_run,
            "reason": reason,
        }
        if not args.dry_run:
            confirm(args, f"Delete pipeline {args.pipeline}, its checkpoints and its receipts?")
            ledger.delete_pipeline(args.pipeline, actor=actor(), reason=reason, is_dead=is_dead, epoch=epoch)
        return result
