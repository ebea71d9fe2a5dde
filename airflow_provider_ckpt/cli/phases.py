"""``airflow ckpt drain``, ``stop`` and ``resume``: whether a pipeline may plan and begin.

``stop`` does what an operator means by it: it drains, and stops as soon as nothing is in flight. Where something is,
the pipeline is left draining, and the command says so and fails.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.acting import act, act_in, document, table
from airflow_provider_ckpt.cli.command import FailedError, command
from airflow_provider_ckpt.cli.person import who, why
from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.tickets import Phase


@command(table)
def drain(args: Namespace) -> dict[str, Any]:
    """Plan and begin nothing more."""
    return act(args, Act(ActKind.DRAIN), why=why(args))


@command(table)
def resume(args: Namespace) -> dict[str, Any]:
    """Plan and begin again."""
    return act(args, Act(ActKind.RESUME), why=why(args))


@command(table)
def stop(args: Namespace) -> dict[str, Any]:
    """Drain and stop, or with ``--force`` stop at once."""
    return _force(args) if args.force else _gently(args)


def _force(args: Namespace) -> dict[str, Any]:
    from airflow_provider_ckpt.cli.setup import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.people import carry_out

    reason = why(args, required_by="stop --force")
    wanted = Act(ActKind.FORCE_STOP)
    with open_ledger(args.ledger) as ledger:
        if args.dry_run:
            return act_in(ledger, args, wanted, why=reason) | {"waits_for": None}
        result = carry_out(setup_of(args, ledger), wanted, who=who(), why=reason)
        return document(ledger, args, result, why=reason)


def _gently(args: Namespace) -> dict[str, Any]:
    from airflow_provider_ckpt.ledger_location import open_ledger

    reason = why(args)
    with open_ledger(args.ledger) as ledger:
        status = ledger.status(args.pipeline)
        if status["phase"] != Phase.RUNNING:
            return act_in(ledger, args, Act(ActKind.STOP), why=reason)
        drained = act_in(ledger, args, Act(ActKind.DRAIN), why=reason)
        flying = status["batches"].get(BatchState.IN_FLIGHT, 0)
        if drained["waits_for"] is None and flying:
            raise FailedError(
                f"pipeline {args.pipeline} {'would drain' if args.dry_run else 'drains'} now, and is not stopped: "
                f"{flying} batches are in flight. The next run settles them; then stop it again, or add --force",
                drained,
            )
        if args.dry_run:
            return drained | {"act": "stop", "after": {**drained["after"], "phase": Phase.STOPPED.value}}
        stopped = act_in(ledger, args, Act(ActKind.STOP), why=reason)
        if drained["intent"] is not None:
            stopped["next"] = f"it drains first, which is stored as number {drained['intent']}"
        return stopped | {"before": drained["before"] or stopped["before"]}
