"""Define the commands that have records read again, and those that continue a pipeline after its sink has changed."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def reread_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``rewind``, ``replay``, ``recover`` and ``adopt``."""
    yield define_command(
        "rewind",
        "rewind.rewind",
        "Move the checkpoint back, so that the records after it are read and delivered again",
        *(arguments.PIPELINE, arguments.PARTITION),
        arg(
            "--to-position",
            type=arguments.position,
            metavar="N",
            help="rewind to this position, the first to read again",
        ),
        arg("--to-time", metavar="TIME", help="rewind to the checkpoint at this time (ISO 8601; UTC if no zone)"),
        arg(
            "--to-batch",
            metavar="BATCH",
            help="rewind to the beginning of this batch, as its receipt in the sink shows it",
        ),
        *(arguments.REQUIRED_REASON, arguments.DRY_RUN, arguments.DECLARATION),
        more="A new generation begins at that position, and unresolved batches are superseded. A sink that appends "
        "gets the rows twice. Give exactly one of --to-position, --to-time and --to-batch.",
    )
    span = (
        arg(
            "--from",
            dest="start",
            type=arguments.position,
            required=True,
            metavar="N",
            help="the first position to read",
        ),
        arg(
            "--to",
            dest="end",
            type=arguments.position,
            required=True,
            metavar="M",
            help="the first position that is not read any more",
        ),
    )
    replayed = arg(
        "--with-replayed",
        action="store_true",
        help="also read dead letters that a replay has delivered already; a sink that appends gets them twice",
    )
    yield GroupCommand(
        "replay",
        "Read records again, without moving the checkpoint",
        (
            define_command(
                "range",
                "replay_range.replay_range",
                "Read a range below the checkpoint again",
                *(
                    arguments.PIPELINE,
                    arguments.PARTITION,
                    *span,
                    replayed,
                    arguments.REASON,
                    arguments.DRY_RUN,
                    arguments.DECLARATION,
                ),
                more="The range is read in a side partition, so the checkpoint does not move. A sink that appends gets "
                "the rows twice.",
            ),
        ),
    )
    yield define_command(
        "recover",
        "recover.recover",
        "Find records that no receipt accounts for, and have the next run read them",
        *(arguments.PIPELINE, arguments.REASON, arguments.DRY_RUN, arguments.DECLARATION),
    )
    yield define_command(
        "adopt",
        "adopt.adopt",
        "Take over a pipeline whose receipts in the sink are another ledger's",
        arguments.PIPELINE,
        arg(
            "--ledger-id",
            required=True,
            metavar="ID",
            help="id of the other ledger, which the error of a refused run names",
        ),
        *(arguments.REQUIRED_REASON, arguments.DRY_RUN, arguments.DECLARATION),
        more="Use it if the other ledger is lost. Give --file if this ledger has never run the pipeline.",
    )


def sink_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``accept-sink``, for a changed sink, and ``move``, for a change to another sink."""
    yield define_command(
        "accept-sink",
        "sinks.accept_sink",
        "Let runs continue with a sink that was restored, emptied or recreated",
        arguments.PIPELINE,
        arg("--resend", action="store_true", help="send again the ranges for which the sink has no receipt"),
        arg("--keep", action="store_true", help="continue from the checkpoint; lost records remain lost"),
        arg(
            "--from",
            dest="start",
            action="append",
            metavar="[PARTITION=]N",
            help="with --resend, if receipts do not show what is lost: send again from this position on; repeatable",
        ),
        *(arguments.REQUIRED_REASON, arguments.DRY_RUN, arguments.DECLARATION),
        more="Use it if runs are refused because the sink is not as this ledger left it. Give one of --resend and "
        "--keep; --dry-run shows what would be sent again.",
    )
    yield define_command(
        "move",
        "sinks.move",
        "Let the next run deliver to another sink",
        arguments.PIPELINE,
        arg(
            "--unreachable",
            action="store_true",
            help="do not read the previous sink, because it no longer exists or answers",
        ),
        *(arguments.REQUIRED_REASON, arguments.DRY_RUN, arguments.DECLARATION),
        more="The command settles the receipts of the previous sink, as the newest run (or --file) declares it. The "
        "next run delivers to the sink that its own declaration names, from the checkpoint on.",
    )
