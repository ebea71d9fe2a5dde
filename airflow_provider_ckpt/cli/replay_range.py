"""``airflow ckpt replay range``: have a range below the checkpoint sent again; the checkpoint does not move."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.request_action import action_context, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.replication.actions.carry_out_action import apply_behind_fence
from airflow_provider_ckpt.replication.actions.rewind_target import source_partition


@command(write_result)
def replay_range(args: Namespace) -> dict[str, Any]:
    """Have the next run read the range ``--from`` to ``--to`` again in a side partition; return the result document.

    :param args: arguments of the command, among them pipeline, partition and range
    :raises ConfigError: if the range is empty, or there is no such source partition
    """
    with action_context(args) as context:
        try:
            ranges = ((source_partition(context, args.partition), Range(args.start, args.end)),)
        except ValueError as error:
            raise ConfigError(
                f"{error}.",
                hint="Give --from the first position of the range, and --to a higher one, the first after the range.",
            ) from error
        before = set(context.ledger.partitions(args.pipeline))
        result = apply_behind_fence(context, Action(ActionKind.REPLAY, ranges=ranges, with_replayed=args.with_replayed))
        started = sorted(set(context.ledger.partitions(args.pipeline)) - before)
        if started:
            result["next"] = f"the next run reads the range, as partition {', '.join(started)}"
        return result
