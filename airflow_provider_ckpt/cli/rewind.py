"""``airflow ckpt rewind``: begin a new generation at an earlier position."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.request_action import action_context, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.replication.actions.carry_out_action import apply_behind_fence
from airflow_provider_ckpt.replication.actions.rewind_target import RewindTarget, resolve_positions


@command(write_result)
def rewind(args: Namespace) -> dict[str, Any]:
    """Rewind the pipeline ``args.pipeline`` to an earlier position, and return the result, JSON-ready.

    If a run holds the lease, the rewind is stored, and that run or the next applies it.

    :param args: arguments of the command, among them the partition, and one of position, time and batch
    :raises ConfigError: if the reason is missing, or not exactly one of position, time and batch is given
    :raises LedgerStateError: if the position is after the checkpoint
    """
    target = RewindTarget(args.to_position, args.to_time, args.to_batch)
    with action_context(args, required_by="rewind") as context:
        return apply_behind_fence(
            context, Action(ActionKind.REWIND, positions=resolve_positions(context, target, args.partition))
        )
