"""``airflow ckpt hold``, ``release`` and ``skip``: actions on single batches."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_provider_ckpt.cli.request_action import action_context, request_action, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.carry_out_action import skip_batches
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys


@command(write_result)
def hold(args: Namespace) -> dict[str, Any]:
    """Hold the batches ``args.batch``, so that no run sends them until a user releases or skips them.

    :return: the result of the action, JSON-ready
    :raises LedgerStateError: if a batch cannot be held in its present state, for example because it was delivered
    """
    return request_action(args, Action(ActionKind.HOLD, parse_batch_keys(args.batch)))


@command(write_result)
def release(args: Namespace) -> dict[str, Any]:
    """Release held batches: those of ``args.batch``, or with ``--all`` all of the pipeline.

    A released batch becomes ``planned`` again, and its attempts are counted from zero.

    :return: the result of the action, JSON-ready
    :raises ConfigError: if neither batches nor ``--all`` are given, or both
    :raises LedgerStateError: if a batch is not held
    """
    if bool(args.batch) == args.all:
        raise ConfigError("name the batches to release, or add --all.", hint="Give one of the two, not both.")
    return request_action(args, Action(ActionKind.RELEASE, parse_batch_keys(args.batch)))


@command(write_result)
def skip(args: Namespace) -> dict[str, Any]:
    """Skip the batches ``args.batch``: give them up, so that their records are not delivered.

    :return: the result of the action, JSON-ready
    :raises ConfigError: if the reason is missing
    :raises LedgerStateError: if a batch cannot be skipped in its present state, for example because it was delivered
    """
    with action_context(args, required_by="skip") as context:
        return skip_batches(context, args.batch)
