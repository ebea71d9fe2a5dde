"""``airflow ckpt hold``, ``release`` and ``skip``: what a person decides about single batches."""

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
    """Put batches aside."""
    return act(args, Act(ActKind.HOLD, batch_keys(args.batch)))


@command(table)
def release(args: Namespace) -> dict[str, Any]:
    """Give held batches their attempts back; all of them must be asked for."""
    if bool(args.batch) == args.all:
        raise ConfigError("name the batches to release, or say --all.", hint="Not both, and not neither.")
    return act(args, Act(ActKind.RELEASE, batch_keys(args.batch)))


@command(table)
def skip(args: Namespace) -> dict[str, Any]:
    """Give batches up."""
    with errand(args, required_by="skip") as asked:
        return actions.skip(asked, args.batch)
