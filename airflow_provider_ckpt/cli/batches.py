"""``airflow ckpt hold``, ``release`` and ``skip``: actions on single batches."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.actions import act, errand, table
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions import actions
from airflow_provider_ckpt.replication.actions.actions import batch_keys


@command(table)
def hold(args: Namespace) -> dict[str, Any]:
    """Hold batches."""
    return act(args, Act(ActKind.HOLD, batch_keys(args.batch)))


@command(table)
def release(args: Namespace) -> dict[str, Any]:
    """Plan held batches again, with all of their attempts; ``--all`` is required to release all of them."""
    if bool(args.batch) == args.all:
        raise ConfigError("name the batches to release, or add --all.", hint="Give one of the two, not both.")
    return act(args, Act(ActKind.RELEASE, batch_keys(args.batch)))


@command(table)
def skip(args: Namespace) -> dict[str, Any]:
    """Skip batches: their records are not delivered."""
    with errand(args, required_by="skip") as asked:
        return actions.skip(asked, args.batch)
