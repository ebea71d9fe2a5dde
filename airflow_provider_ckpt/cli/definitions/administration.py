"""Define the commands for leases, old history, pipelines, the ledger's database and Spark drivers."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command
from airflow_provider_ckpt.cli.definitions.roles import role_commands


def administration_commands() -> Iterable[CLICommand]:
    """Yield the CLI commands ``lease`` and ``gc``, and the command groups ``pipeline`` and ``db``."""
    breaking = arg(
        "--break", dest="break_lease", action="store_true", help="take the lease from its owner; needs --reason"
    )
    some = arg("pipeline", nargs="?", help="the pipeline's name")
    every = arg("--all", action="store_true", help="all pipelines")
    keep = arg("--keep", default="30d", metavar="SPAN", help="keep history younger than this (default: 30d)")
    yield define_command(
        "lease",
        "lease.lease",
        "Show who holds a pipeline's lease, or break it",
        *(arguments.PIPELINE, breaking, arguments.REASON, arguments.DRY_RUN),
    )
    yield define_command(
        "gc",
        "gc.gc",
        "Delete history that recovery does not need",
        *(some, every, keep, arguments.REASON, arguments.DRY_RUN),
    )
    yield GroupCommand(
        "pipeline",
        "List, show and delete the ledger's pipelines",
        (
            define_command("list", "pipelines.list_all", "List all pipelines with phase, lease and batches"),
            define_command(
                "show", "pipelines.show", "Show a pipeline's declaration and partitions", arguments.PIPELINE
            ),
            define_command(
                "delete",
                "pipelines.delete",
                "Delete a pipeline from the ledger; sink and audit log remain",
                *(arguments.PIPELINE, arguments.REQUIRED_REASON, arguments.YES, arguments.DRY_RUN),
            ),
        ),
    )
    yield GroupCommand(
        "db",
        "Create, upgrade and check the ledger",
        (
            define_command(
                "migrate", "db.migrate", "Create the ledger, or upgrade it to the revision that this version needs"
            ),
            define_command(
                "check",
                "db.check",
                "Check that the ledger is at the revision that this version needs; exit status 1 if not",
            ),
            define_command(
                "downgrade",
                "db.downgrade",
                "Downgrade the ledger to an older revision",
                arg("revision", help="revision such as 0001; base drops the tables and their content"),
                *(arguments.YES, arguments.DRY_RUN),
                more="Use it before an older version of the package is installed.",
            ),
            GroupCommand(
                "roles",
                "Print SQL that creates PostgreSQL roles with few privileges, without running it",
                tuple(role_commands()),
            ),
        ),
    )


def spark_commands() -> Iterable[CLICommand]:
    """Yield the command group ``spark``."""
    file = arg("file", nargs="?", help="YAML file of a pipeline whose run.conf the driver gets")
    force = arg(
        "--force",
        action="store_true",
        help="do not wait for current runs: each of them starts a Spark driver of its own and continues",
    )
    yield GroupCommand(
        "spark",
        "Show, start and stop the Spark drivers that the warm engine keeps on this machine between runs",
        (
            define_command(
                "status", "spark.status", "Show your standing Spark drivers: version, age, runs, memory, sessions"
            ),
            define_command(
                "start",
                "spark.start",
                "Start a standing Spark driver, so that the first run does not wait for it",
                file,
            ),
            define_command(
                "stop", "spark.stop", "Stop your standing Spark drivers; each ends after its current runs", force
            ),
        ),
    )
