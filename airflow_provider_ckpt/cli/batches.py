"""``airflow ckpt hold``, ``release`` and ``skip``: what a person decides about single batches."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.acting import act, batch_keys, table
from airflow_provider_ckpt.cli.command import command
from airflow_provider_ckpt.cli.person import why
from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import ConfigError


@command(table)
def hold(args: Namespace) -> dict[str, Any]:
    """Put batches aside."""
    return act(args, Act(ActKind.HOLD, batch_keys(args.batch)), why=why(args))


@command(table)
def release(args: Namespace) -> dict[str, Any]:
    """Give held batches their attempts back; all of them must be asked for."""
    if bool(args.batch) == args.all:
        raise ConfigError("name the batches to release, or say --all.", hint="Not both, and not neither.")
    return act(args, Act(ActKind.RELEASE, batch_keys(args.batch)), why=why(args))


@command(table)
def skip(args: Namespace) -> dict[str, Any]:
    """Give batches up."""
    result = act(args, Act(ActKind.SKIP, batch_keys(args.batch)), why=why(args, required_by="skip"))
    states = result["after"].get("batches", {})
    begun = sorted(batch for batch, state in states.items() if state in (BatchState.PLANNED, BatchState.IN_FLIGHT))
    if begun:
        result["next"] = (
            f"{', '.join(begun)}: begun before, so the next attempt claims `void` in the sink; "
            "if it was delivered after all, its receipt stands"
        )
    return result
