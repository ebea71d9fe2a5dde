"""The commands and their arguments, as Airflow's parser wants them; a command itself is imported when it is called."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

_COMMANDS = "airflow_provider_ckpt.cli"
_FILE = Arg(("file",), help="the pipeline's YAML file")  # type: ignore[no-untyped-call]
_PIPELINE = Arg(("pipeline",), help="the pipeline's name")  # type: ignore[no-untyped-call]
_OUTPUT = Arg(  # type: ignore[no-untyped-call]
    ("-o", "--output"),
    help="table, or json: one document on standard output, everything else on standard error (default: table)",
    choices=("table", "json"),
    metavar="(table, json)",
    default="table",
)
_LEDGER = Arg(("--ledger",), help="the ledger's connection id (default: ckpt_default)", default="ckpt_default")  # type: ignore[no-untyped-call]


def get_ckpt_commands() -> list[CLICommand]:
    """Every ``airflow ckpt`` command; named in the provider's info."""
    return [
        GroupCommand(
            name="ckpt",
            help="Checkpointed replication: pipelines and the ledger",
            subcommands=(
                ActionCommand(
                    name="run",
                    help="Replicate whatever is new, once",
                    description="One run of a pipeline without a DAG: the same code, the same ledger. "
                    "Exit status 0 if it ended with nothing held, else 1.",
                    func=lazy_load_command(f"{_COMMANDS}.run.run"),
                    args=(_FILE, _OUTPUT, _LEDGER, ARG_VERBOSE),
                ),
                ActionCommand(
                    name="status",
                    help="Say where a pipeline stands",
                    func=lazy_load_command(f"{_COMMANDS}.status.show"),
                    args=(_PIPELINE, _OUTPUT, _LEDGER, ARG_VERBOSE),
                ),
                GroupCommand(
                    name="db",
                    help="Create, upgrade and check the ledger",
                    subcommands=(
                        ActionCommand(
                            name="migrate",
                            help="Create the ledger, or bring it to this version's revision",
                            func=lazy_load_command(f"{_COMMANDS}.db.migrate"),
                            args=(_OUTPUT, _LEDGER, ARG_VERBOSE),
                        ),
                        ActionCommand(
                            name="check",
                            help="Exit with 0 if the ledger is at this version's revision, else with 1",
                            func=lazy_load_command(f"{_COMMANDS}.db.check"),
                            args=(_OUTPUT, _LEDGER, ARG_VERBOSE),
                        ),
                    ),
                ),
            ),
        )
    ]
