"""Definitions of the commands that run pipelines, and that check or preview a run."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli import arguments
from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def run_commands() -> Iterable[CLICommand]:
    """Yield the commands ``run``, ``validate`` and ``plan`` of ``airflow ckpt``."""
    yield define_command(
        "run",
        "run.run",
        "Run pipelines once: replicate all new records",
        arg("files", nargs="+", metavar="FILE", help="YAML file of a pipeline"),
        arg(
            "--at-once",
            type=arguments.count,
            metavar="N",
            help="of several pipelines, at most N work at once (default: 4; 1 if one starts a Spark of its own)",
        ),
        more="The run needs no DAG; it uses the same code and the same ledger as the tasks of a DAG. Several pipelines "
        "run in one process, and one that fails does not stop the others. The exit status is 1 if a run failed, or if "
        "it held a batch and run.fail_on_hold is true; else 0.",
    )

    yield define_command(
        "validate",
        "validation.validate",
        "Check the YAML files of pipelines",
        arg("files", nargs="+", metavar="FILE", help="YAML file of a pipeline"),
        arg(
            "--connect",
            action="store_true",
            help="also connect to source and sink, and check that they fit the pipeline; changes nothing there",
        ),
        arg(
            "--conformance",
            action="store_true",
            help="also run the conformance suite of sinks beside the target of a sink of type sql: in tables of its "
            "own, which it drops; needs the extra testing",
        ),
        more="The exit status is 1 if any file is invalid.",
    )
    yield define_command(
        "plan",
        "plan.plan",
        "Show what a run would do, without changing anything",
        arguments.FILE,
        more="It shows the partitions, ranges, batches and records that a run would plan from the source as it is now, "
        "and the batches that wait for another attempt or are held.",
    )


def database_commands() -> Iterable[CLICommand]:
    """Yield the command group ``database``, which shows and runs the tables of a declaration of many tables."""
    file = arg("file", help="YAML file that declares many tables of a database")
    every = arg(
        "--all", action="store_true", help="also run the tables without new records, so that their checks are made"
    )
    yield GroupCommand(
        "database",
        "Replicate many tables of a database, which one file declares",
        (
            define_command(
                "show",
                "database.show",
                "Show which pattern matches what, which tables have errors, and which have new records",
                file,
                more="It reads the source's catalog and compares it with the ledger; it changes nothing. The exit "
                "status is 1 if a table or a pattern has an error.",
            ),
            define_command(
                "run",
                "database.run",
                "Run the tables that have new records once",
                file,
                every,
                arg(
                    "--at-once",
                    type=arguments.count,
                    metavar="N",
                    help="at most N tables work at once (default: 4; 1 if they start a Spark of their own)",
                ),
                more="All tables run in one process, those with the fewest new records first, and in turns. One that "
                "fails does not stop the others; the exit status is then 1, and the last line names it.",
            ),
            define_command(
                "status",
                "database.status",
                "Show the state of the tables in the ledger: phase, lag, held batches, dead letters",
                file,
                more="It does not read the source.",
            ),
        ),
    )
