"""``airflow ckpt drain``, ``stop`` and ``resume``: change the phase of a pipeline.

``stop`` first drains the pipeline. If no batch is in flight, the pipeline is then stopped; otherwise it remains
draining, and the command fails with an explanation.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.request_action import action_context, request_action, write_result
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.replication.actions.carry_out_action import apply_in_ledger, force_stop


@command(write_result)
def drain(args: Namespace) -> dict[str, Any]:
    """Drain the pipeline ``args.pipeline``, so that no batch is planned or started any more.

    :return: the result of the action, JSON-ready
    :raises LedgerStateError: if the pipeline is stopped
    """
    return request_action(args, Action(ActionKind.DRAIN))


@command(write_result)
def resume(args: Namespace) -> dict[str, Any]:
    """Resume the pipeline ``args.pipeline``, so that batches are planned and started again.

    :return: the result of the action, JSON-ready
    """
    return request_action(args, Action(ActionKind.RESUME))


@command(write_result)
def stop(args: Namespace) -> dict[str, Any]:
    """Drain and stop the pipeline ``args.pipeline``, or with ``--force`` stop it at once.

    :return: the result of the action, JSON-ready
    :raises ConfigError: if the reason is missing with ``--force``
    :raises FailedError: without ``--force``, if batches are in flight, so that the pipeline remains draining; the error
        contains the result
    """
    return _stop_at_once(args) if args.force else _drain_and_stop(args)


def _stop_at_once(args: Namespace) -> dict[str, Any]:
    with action_context(args, required_by="stop --force") as context:
        return force_stop(context)


def _drain_and_stop(args: Namespace) -> dict[str, Any]:
    with action_context(args) as context:
        status = context.ledger.status(args.pipeline)
        if status["phase"] != Phase.RUNNING:
            return apply_in_ledger(context, Action(ActionKind.STOP))
        drained = apply_in_ledger(context, Action(ActionKind.DRAIN))
        flying = status["batches"].get(BatchState.IN_FLIGHT, 0)
        if drained["waits_for"] is None and flying:
            raise FailedError(
                f"pipeline {args.pipeline} {'would drain' if args.dry_run else 'is draining'}, but cannot be stopped: "
                f"{flying} batches are in flight. The next run settles them; repeat the command then, or add --force",
                drained,
            )
        if args.dry_run:
            return drained | {"action": "stop", "after": {**drained["after"], "phase": Phase.STOPPED.value}}
        stopped = apply_in_ledger(context, Action(ActionKind.STOP))
        if drained["intent"] is not None:
            stopped["next"] = f"the pipeline drains first, which is stored as action {drained['intent']}"
        return stopped | {"before": drained["before"] or stopped["before"]}
