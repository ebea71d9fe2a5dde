"""Definitions of the commands that drain, stop or resume pipelines, and hold, release or skip batches."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def phase_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``drain``, ``stop`` and ``resume``."""
    force = arg("--force", action="store_true", help="abandon the batches in flight and fence the sink; needs --reason")
    yield define_command(
        "drain",
        "phases.drain",
        "Drain a pipeline: plan and start nothing more, and let the batches in flight end",
        *(arguments.PIPELINE, arguments.REASON, arguments.DRY_RUN),
    )
    yield define_command(
        "stop",
        "phases.stop",
        "Drain a pipeline, and stop it if no batch is in flight",
        *(arguments.PIPELINE, force, arguments.REASON, arguments.DRY_RUN, arguments.DECLARATION),
        more="If batches are in flight, the command fails and leaves the pipeline draining; repeat it after the next "
        "run. Planned and held batches remain, and continue to block the checkpoint.",
    )
    yield define_command(
        "resume",
        "phases.resume",
        "Let a draining or stopped pipeline run again",
        *(arguments.PIPELINE, arguments.REASON, arguments.DRY_RUN),
    )


def batch_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``hold``, ``release`` and ``skip``."""
    some = arg("batch", nargs="*", metavar="BATCH", help="a batch, partition#seq as `airflow ckpt inspect` shows it")
    every = arg("--all", action="store_true", help="all held batches")
    yield define_command(
        "hold",
        "batches.hold",
        "Hold batches: do not send them until they are released or skipped",
        *(arguments.PIPELINE, arguments.BATCHES, arguments.REASON, arguments.DRY_RUN),
    )
    yield define_command(
        "release",
        "batches.release",
        "Release held batches: plan them again, with the full number of attempts",
        *(arguments.PIPELINE, some, every, arguments.REASON, arguments.DRY_RUN),
    )
    yield define_command(
        "skip",
        "batches.skip",
        "Skip batches: give them up, without delivering their records",
        *(arguments.PIPELINE, arguments.BATCHES, arguments.REQUIRED_REASON, arguments.DRY_RUN),
        more="A batch that was never started is skipped in the ledger. For any other batch, the next run claims the "
        "verdict `void` in the sink; if the batch was delivered after all, its receipt there remains valid.",
    )
