"""``airflow ckpt rewind`` and ``replay range``: read records below the checkpoint again."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.actions import errand, table
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.replication.actions.actions import behind_fence
from airflow_provider_ckpt.replication.actions.rewind_target import Goal, positions, source_partition


@command(table)
def rewind(args: Namespace) -> dict[str, Any]:
    """Start a new generation at an earlier position. If a run holds the lease, the next run does it."""
    goal = Goal(args.to_position, args.to_time, args.to_batch)
    with errand(args, required_by="rewind") as asked:
        return behind_fence(asked, Act(ActKind.REWIND, positions=positions(asked, goal, args.partition)))


@command(table)
def replay_range(args: Namespace) -> dict[str, Any]:
    """Add a side partition that reads a range again; the checkpoint does not move."""
    with errand(args) as asked:
        try:
            spans = ((source_partition(asked, args.partition), Range(args.start, args.end)),)
        except ValueError as error:
            raise ConfigError(
                f"{error}.", hint="--from is the first position, --to the first one after the range."
            ) from error
        before = set(asked.ledger.partitions(args.pipeline))
        result = behind_fence(asked, Act(ActKind.REPLAY, spans=spans, with_replayed=args.with_replayed))
        made = sorted(set(asked.ledger.partitions(args.pipeline)) - before)
        if made:
            result["next"] = f"the next run reads it, as partition {', '.join(made)}"
        return result
