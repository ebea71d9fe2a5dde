"""``airflow ckpt status PIPELINE``: show a pipeline's state in the ledger, and its last DAG run in Airflow."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.dag_run_disagreement import last_dag_run
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.request_action import stored_actions
from airflow_provider_ckpt.cli.runner import command

_OUTCOMES = ("read", "delivered", "filtered", "dead_lettered")


def _table(status: dict[str, Any], out: TextIO) -> None:
    lease = status["lease"]
    records = status["records"]
    rows = [
        ("pipeline", status["pipeline"]),
        ("phase", status["phase"]),
        ("generation", str(status["generation"])),
        ("lease", f"{lease['owner']} until {lease['expires']}" if lease["held"] else "free"),
        ("epoch", str(lease["epoch"])),
        *((f"records {outcome.replace('_', ' ')}", records[outcome]) for outcome in _OUTCOMES),
        ("dead letters", status["dead_letters"]),
        ("batches beyond the checkpoint", status["batches"]),
    ]
    dag_run = status["dag_run"]
    if dag_run is not None:
        rows.append(("last DAG run", f"{dag_run['dag_id']} {dag_run['run_id']}: {dag_run['state'] or 'gone'}"))
        rows += [("they disagree", dag_run["disagrees"])] if dag_run["disagrees"] else []
    write_table(rows, out)
    partitions = status["partitions"]
    write_table(
        [(part["id"], part["committed"], part["planned_end"], part["bound"], part["batches"]) for part in partitions],
        out,
        ("partition", "checkpoint", "planned to", "source known to", "batches"),
    )
    if status["schema_versions"]:
        write_table(
            [(item["version"], item["position"], "; ".join(item["decision"])) for item in status["schema_versions"]],
            out,
            ("schema version", "from position", "decision"),
        )
    stuck = [(kind, item) for kind in ("held", "waiting") for item in status[kind]]
    if stuck:
        write_table(
            [(kind, item["batch"], item["attempts"], (item["error"] or {}).get("message")) for kind, item in stuck],
            out,
            ("", "batch", "attempts", "error"),
        )
    if status["intents"]:
        stored_actions = [(item["action"], item["actor"], item["reason"], item["stored"]) for item in status["intents"]]
        write_table(stored_actions, out, ("waits for the lease", "requested by", "reason", "at"))


@command(_table)
def show(args: Namespace) -> dict[str, Any]:
    """Return the ledger's status of the pipeline ``args.pipeline`` as a JSON-ready dict.

    Two keys are added: ``dag_run``, the pipeline's last DAG run (see :func:`last_dag_run`), and ``intents``, the stored
    actions that no run has applied yet.
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        status = ledger.status(args.pipeline)
        return {**status, "dag_run": last_dag_run(status), "intents": stored_actions(ledger, args.pipeline)}
