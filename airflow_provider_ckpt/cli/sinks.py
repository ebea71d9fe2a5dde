"""``airflow ckpt accept-sink`` and ``move``: continue a pipeline with a changed sink, or with another one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from airflow_provider_ckpt.cli.arguments import position as parse_position
from airflow_provider_ckpt.cli.request_action import action_context, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.accept_sink import make_acceptance, make_move
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.actions.rewind_target import RewindTarget, resolve_positions


@command(write_result)
def accept_sink(args: Namespace) -> dict[str, Any]:
    """Accept a sink that was restored, emptied or recreated, so that runs no longer refuse it; return the result.

    With ``--resend``, runs send those ranges again that the ledger knows as delivered, but for which the sink has no
    receipt. With ``--keep``, runs continue from the checkpoint, and records that the sink has lost are not sent again.

    :param args: parsed arguments of the command
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises ConfigError: if not exactly one of ``--resend`` and ``--keep`` is given, if ``--from`` is given with
        ``--keep``, or if the reason is missing
    """
    if args.resend == args.keep:
        raise ConfigError(
            "give either --resend or --keep.",
            hint="--resend sends what is lost again; --keep continues from the checkpoint without it.",
        )
    if args.keep and args.start:
        raise ConfigError("--from requires --resend.", hint="Leave it out, or replace --keep by --resend.")
    with action_context(args, required_by="accept-sink") as context:
        start = _positions(context, args.start or ())
        return change_sink(context, make_acceptance(context.setup(), resend=args.resend, start=start))


@command(write_result)
def move(args: Namespace) -> dict[str, Any]:
    """Settle the receipts of the present sink, so that the next run may deliver to another sink, and return the result.

    The next run delivers to the sink that its declaration names, from the checkpoint on. With ``--unreachable`` the
    present sink is not read.
    """
    with action_context(args, required_by="move") as context:
        return change_sink(context, make_move(context.setup(), unreachable=args.unreachable))


def _positions(context: ActionContext, texts: Iterable[str]) -> dict[str, int]:
    """Return the first position to send again, by source partition, from the values ``[PARTITION=]N`` of ``--from``.

    :raises ConfigError: if a value has another form, names an unknown partition, or names no partition although the
        pipeline has several
    """
    found: dict[str, int] = {}
    for text in texts:
        partition, _, number = text.rpartition("=")
        try:
            position = parse_position(number)
        except ValueError:
            raise ConfigError(
                f"--from {text}: {number!r} is not a position.",
                hint="Write --from N, or --from PARTITION=N if there are several partitions.",
            ) from None
        found |= resolve_positions(context, RewindTarget(position), partition or None)
    return found
