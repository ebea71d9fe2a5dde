"""Definitions of the commands of ``airflow ckpt db roles``."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import CLICommand

from airflow_provider_ckpt.cli.arguments import arg
from airflow_provider_ckpt.cli.definitions.command import define_command


def role_commands() -> Iterable[CLICommand]:
    """Yield the commands that print SQL which creates database roles: for a ledger, for targets and for sources."""
    reader = arg("--reader", default="ckpt_reader", metavar="ROLE", help="role that only reads (default: ckpt_reader)")
    yield define_command(
        "ledger",
        "roles.ledger",
        "Print SQL for a ledger: its schema, and roles that migrate, run pipelines and read",
        arg("--schema", default="ckpt", help="the ledger's own schema (default: ckpt)"),
        arg("--owner", default="ckpt_owner", metavar="ROLE", help="role that migrates (default: ckpt_owner)"),
        arg(
            "--runtime", default="ckpt_runtime", metavar="ROLE", help="role that runs pipelines (default: ckpt_runtime)"
        ),
        reader,
        more="Run the SQL before the first migration, and again after every migration.",
    )
    yield define_command(
        "sink",
        "roles.sink",
        "Print SQL for targets: a role that writes to them, and creates objects only if asked to",
        arg("schema", help="the schema of the targets"),
        arg("--table", action="append", metavar="NAME", help="a target table in the schema; repeatable"),
        arg("--upsert", action="store_true", help="let the role also replace rows, for sinks with mode: upsert"),
        arg(
            "--replace",
            action="store_true",
            help="let the role also delete rows and create staging tables, for sinks with mode: replace",
        ),
        arg("--create", action="store_true", help="let the role also create targets, for sinks with create: true"),
        arg(
            "--pipeline",
            action="append",
            metavar="NAME",
            help="a pipeline whose runs connect as the writer, or the beginning of names, such as 'shop.*'; repeatable",
        ),
        arg("--writer", default="ckpt_writer", metavar="ROLE", help="role that writes (default: ckpt_writer)"),
        reader,
        more="The SQL creates the sink's bookkeeping tables in the schema; the writer sees only the rows of its own "
        "pipelines there. If it is created and run again with fewer tables or pipelines, it revokes the privileges on "
        "the others; with none, it revokes all.",
    )
    yield define_command(
        "source",
        "roles.source",
        "Print SQL for sources: a role that reads tables, and can tell whether a failover lost transactions",
        arg("schema", help="the schema of the tables"),
        arg("--table", action="append", metavar="NAME", help="a source table in the schema; repeatable"),
        arg("--reader", default="ckpt_source", metavar="ROLE", help="role that reads (default: ckpt_source)"),
        more="A superuser has to run the SQL. It creates a function that returns only the positions at which the "
        "timelines of the server's log diverged, and that only the role may call.",
    )
