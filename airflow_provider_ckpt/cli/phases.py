"""``airflow ckpt drain``, ``stop`` and ``resume``: change the phase of a pipeline.

``stop`` drains the pipeline and stops it if no batch is in flight. Otherwise the pipeline remains draining, and the
command fails with an explanation.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.actions import act, errand, table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.tickets import Phase
from airflow_provider_ckpt.replication.actions.actions import force_stop, in_ledger


@command(table)
def drain(args: Namespace) -> dict[str, Any]:
    """Drain a pipeline: no batch is planned or started any more."""
    return act(args, Act(ActKind.DRAIN))


@command(table)
def resume(args: Namespace) -> dict[str, Any]:
    """Resume a pipeline: batches are planned and started again."""
    return act(args, Act(ActKind.RESUME))


@command(table)
def stop(args: Namespace) -> dict[str, Any]:
    """Drain and stop, or with ``--force`` stop at once."""
    return _force(args) if args.force else _gently(args)


def _force(args: Namespace) -> dict[str, Any]:
    with errand(args, required_by="stop --force") as asked:
        return force_stop(asked)


def _gently(args: Namespace) -> dict[str, Any]:
    with errand(args) as asked:
        status = asked.ledger.status(args.pipeline)
        if status["phase"] != Phase.RUNNING:
            return in_ledger(asked, Act(ActKind.STOP))
        drained = in_ledger(asked, Act(ActKind.DRAIN))
        flying = status["batches"].get(BatchState.IN_FLIGHT, 0)
        if drained["waits_for"] is None and flying:
            raise FailedError(
                f"pipeline {args.pipeline} {'would drain' if args.dry_run else 'drains'} now, and is not stopped: "
                f"{flying} batches are in flight. The next run settles them; then stop it again, or add --force",
                drained,
            )
        if args.dry_run:
            return drained | {"act": "stop", "after": {**drained["after"], "phase": Phase.STOPPED.value}}
        stopped = in_ledger(asked, Act(ActKind.STOP))
        if drained["intent"] is not None:
            stopped["next"] = f"it drains first, which is stored as number {drained['intent']}"
        return stopped | {"before": drained["before"] or stopped["before"]}
