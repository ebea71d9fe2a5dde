"""Definition of ``airflow ckpt`` and its subcommands; the module of a command is imported when it is called."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_provider_ckpt.cli import arguments as common
from airflow_provider_ckpt.cli.arguments import arg

_COMMANDS = "airflow_provider_ckpt.cli"


def get_ckpt_commands() -> list[CLICommand]:
    """Return all ``airflow ckpt`` commands; the provider info refers to this function."""
    commands = (
        *_run_commands(),
        *_inspection_commands(),
        *_phase_commands(),
        *_batch_commands(),
        *_reread_commands(),
        *_sink_commands(),
        *_dead_letter_commands(),
        *_administration_commands(),
        *_spark_commands(),
    )
    return [GroupCommand("ckpt", "Checkpointed replication: pipelines and the ledger", commands)]


def _command(name: str, function: str, text: str, *args: Arg, more: str | None = None) -> ActionCommand:
    """Create a command whose module is imported when it is called.

    :param name: the command's name
    :param function: module and function below ``cli``
    :param text: first line of the help
    :param args: arguments, in addition to the common ones
    :param more: further text of the command's own help
    """
    description = f"{text}. {more}" if more else None
    return ActionCommand(
        name, text, lazy_load_command(f"{_COMMANDS}.{function}"), (*args, *common.COMMON), description=description
    )


def _run_commands() -> Iterable[CLICommand]:
    yield _command(
        "run",
        "run.run",
        "Replicate all new records, once",
        common.FILE,
        more="One run of a pipeline without a DAG: the same code, the same ledger. "
        "Exit status 0 if it ended with no batch held, or run.fail_on_hold is false; else 1.",
    )

    yield _command(
        "validate",
        "validation.validate",
        "Check pipelines' YAML files",
        arg("files", nargs="+", metavar="FILE", help="a pipeline's YAML file"),
        arg("--connect", action="store_true", help="also check them against source and sink; changes nothing there"),
        more="Exit status 1 if any file is invalid.",
    )
    yield _command(
        "plan",
        "plan.plan",
        "Show what a run would do, and change nothing",
        common.FILE,
        more="Partitions, ranges, batches and records of the source as it is now, and batches that wait or are held.",
    )


def _inspection_commands() -> Iterable[CLICommand]:
    what = arg("what", nargs="?", metavar="BATCH", help="a batch (partition#seq) or a partition (default: everything)")
    quick = arg("--quick", action="store_true", help="omit the checks that need the whole history")
    sink = arg("--against-sink", action="store_true", help="also count receipts, dead letters and rows in the sink")
    shared = arg("--shared-target", action="store_true", help="others write to the target too: do not count its rows")
    yield _command("status", "status.show", "Show the state of a pipeline", common.PIPELINE)
    yield _command(
        "inspect",
        "inspect_.inspect",
        "Show a batch, a partition, or all unresolved batches",
        common.PIPELINE,
        what,
        more="For a batch: its state, attempts, receipt and newest error.",
    )
    yield _command(
        "audit",
        "audit.audit",
        "Check every invariant and account for every position",
        *(common.PIPELINE, quick, sink, shared, common.DECLARATION),
        more="Exit status 1 if an invariant is violated, or ledger and sink differ.",
    )


def _phase_commands() -> Iterable[CLICommand]:
    force = arg("--force", action="store_true", help="abandon the batches in flight and fence the sink; needs --reason")
    yield _command(
        "drain",
        "phases.drain",
        "Start no further batch, and let the batches in flight end",
        *(common.PIPELINE, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "stop",
        "phases.stop",
        "Drain, and stop as soon as no batch is in flight",
        *(common.PIPELINE, force, common.REASON, common.DRY_RUN, common.DECLARATION),
        more="Planned and held batches remain and continue to block the checkpoint.",
    )
    yield _command(
        "resume",
        "phases.resume",
        "Let a draining or stopped pipeline run again",
        *(common.PIPELINE, common.REASON, common.DRY_RUN),
    )


def _batch_commands() -> Iterable[CLICommand]:
    some = arg("batch", nargs="*", metavar="BATCH", help="partition#seq, as `airflow ckpt inspect` shows it")
    every = arg("--all", action="store_true", help="all held batches")
    yield _command(
        "hold",
        "batches.hold",
        "Hold batches; they continue to block the checkpoint",
        *(common.PIPELINE, common.BATCHES, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "release",
        "batches.release",
        "Plan held batches again, with all of their attempts",
        *(common.PIPELINE, some, every, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "skip",
        "batches.skip",
        "Skip batches: their records are not delivered",
        *(common.PIPELINE, common.BATCHES, common.REQUIRED_REASON, common.DRY_RUN),
        more="A batch that was ever started is skipped by claiming `void` in the sink, which the next run does; "
        "if it was delivered after all, its receipt remains valid.",
    )


def _reread_commands() -> Iterable[CLICommand]:
    yield _command(
        "rewind",
        "rewind.rewind",
        "Move the checkpoint back, so that the records after it are read and delivered again",
        *(common.PIPELINE, common.PARTITION),
        arg("--to-position", type=common.position, metavar="N", help="the first position to read again"),
        arg("--to-time", metavar="TIME", help="to the checkpoint at that time (ISO 8601; UTC if no zone)"),
        arg("--to-batch", metavar="BATCH", help="the batch to read again first, by its receipt in the sink"),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="A new generation starts; unresolved batches are superseded. A sink that appends gets the rows twice.",
    )
    span = (
        arg("--from", dest="start", type=common.position, required=True, metavar="N", help="the first position"),
        arg(
            "--to",
            dest="end",
            type=common.position,
            required=True,
            metavar="M",
            help="the first position after the range",
        ),
    )
    replayed = arg(
        "--with-replayed",
        action="store_true",
        help="also records that a replay of dead letters has delivered; a sink that appends gets them twice",
    )
    yield GroupCommand(
        "replay",
        "Read records again, in side partitions",
        (
            _command(
                "range",
                "rewind.replay_range",
                "Read a range below the checkpoint again",
                *(
                    common.PIPELINE,
                    common.PARTITION,
                    *span,
                    replayed,
                    common.REASON,
                    common.DRY_RUN,
                    common.DECLARATION,
                ),
                more="The checkpoint does not move. A sink that appends gets the rows twice.",
            ),
        ),
    )
    yield _command(
        "recover",
        "recovery.recover",
        "Find records that are unaccounted for, and plan them to be read again",
        *(common.PIPELINE, common.REASON, common.DRY_RUN, common.DECLARATION),
    )
    yield _command(
        "adopt",
        "recovery.adopt",
        "Continue with another ledger's receipts in the sink",
        common.PIPELINE,
        arg(
            "--ledger-id", required=True, metavar="ID", help="the other ledger, as the error of a refused run names it"
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="For a ledger that replaces a lost one; give --file if it has never run the pipeline.",
    )


def _sink_commands() -> Iterable[CLICommand]:
    yield _command(
        "accept-sink",
        "sinks.accept_sink",
        "Continue with a sink that lost commits, was emptied or recreated",
        common.PIPELINE,
        arg("--resend", action="store_true", help="send again exactly the ranges without a receipt in the sink"),
        arg("--keep", action="store_true", help="continue from the checkpoint; lost records remain lost"),
        arg(
            "--from",
            dest="start",
            action="append",
            metavar="[PARTITION=]N",
            help="with --resend: send again from this position on, if receipts do not show what is lost",
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="For a pipeline whose runs are refused because the sink is not as this ledger left it. --dry-run shows "
        "what would be sent again.",
    )
    yield _command(
        "move",
        "sinks.move",
        "Let the next run deliver to another sink",
        common.PIPELINE,
        arg("--unreachable", action="store_true", help="the previous sink cannot be read any more; see the runbook"),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="Settles the previous sink's receipts (as declared by the newest run, or --file). The next run then "
        "delivers to the sink that it declares, from the checkpoint on.",
    )


def _dead_letter_commands() -> Iterable[CLICommand]:
    every = arg("--all", action="store_true", help="also those that were replayed or discarded")
    to = arg("--to", required=True, metavar="FILE", help="a file that does not exist yet")
    looking = (common.PIPELINE, *common.DEAD_LETTER_SELECTION, every)
    yield GroupCommand(
        "dlq",
        "Show, replay and discard dead letters",
        (
            _command(
                "list",
                "dlq.list_all",
                "Show their numbers and states",
                *looking,
                common.DECLARATION,
            ),
            _command(
                "show",
                "dlq.show",
                "Show them, with their bytes and errors",
                *looking,
                common.QUERY,
                common.DECLARATION,
            ),
            _command("export", "dlq.export", "Write them to a file", to, *looking, common.QUERY, common.DECLARATION),
            _command(
                "replay",
                "dlq.replay",
                "Send them again",
                *(
                    common.PIPELINE,
                    *common.DEAD_LETTER_SELECTION,
                    common.QUERY,
                    common.REASON,
                    common.DRY_RUN,
                    common.DECLARATION,
                ),
                more="Through the pipeline as it is declared now, in a side partition. A record that fails again is "
                "parked again.",
            ),
            _command(
                "discard",
                "dlq.discard",
                "Mark them as discarded; the sink still stores them",
                *(
                    common.PIPELINE,
                    *common.DEAD_LETTER_SELECTION,
                    common.QUERY,
                    common.REQUIRED_REASON,
                    common.DRY_RUN,
                    common.DECLARATION,
                ),
            ),
        ),
    )


def _administration_commands() -> Iterable[CLICommand]:
    breaking = arg("--break", dest="break_lease", action="store_true", help="take it from its owner; needs --reason")
    some = arg("pipeline", nargs="?", help="the pipeline's name")
    every = arg("--all", action="store_true", help="all pipelines")
    keep = arg("--keep", default="30d", metavar="SPAN", help="age of history to keep, such as 30d (default)")
    yield _command(
        "lease",
        "lease.lease",
        "Show who holds a pipeline's lease, or break it",
        *(common.PIPELINE, breaking, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "gc",
        "gc.gc",
        "Delete history that recovery does not need",
        *(some, every, keep, common.REASON, common.DRY_RUN),
    )
    yield GroupCommand(
        "pipeline",
        "The pipelines that the ledger knows",
        (
            _command("list", "pipelines.list_all", "List them with phase, lease and batches"),
            _command("show", "pipelines.show", "Show a pipeline's declaration and partitions", common.PIPELINE),
            _command(
                "delete",
                "pipelines.delete",
                "Delete a pipeline from the ledger; sink and audit log remain",
                *(common.PIPELINE, common.REQUIRED_REASON, common.YES, common.DRY_RUN),
            ),
        ),
    )
    yield GroupCommand(
        "db",
        "Create, upgrade and check the ledger",
        (
            _command("migrate", "db.migrate", "Create the ledger, or bring it to this version's revision"),
            _command("check", "db.check", "Exit with 0 if the ledger is at this version's revision, else with 1"),
            _command(
                "downgrade",
                "db.downgrade",
                "Downgrade the ledger to an older revision",
                arg("revision", help="such as 0001; base drops the tables and their content"),
                *(common.YES, common.DRY_RUN),
                more="For returning to an older version of the package.",
            ),
            GroupCommand(
                "roles",
                "Print SQL for PostgreSQL roles with few privileges; connects to nothing",
                tuple(_role_commands()),
            ),
        ),
    )


def _spark_commands() -> Iterable[CLICommand]:
    file = arg("file", nargs="?", help="a pipeline's YAML file, whose Spark properties it gets")
    force = arg(
        "--force", action="store_true", help="do not wait for runs: each starts a Spark of its own and continues"
    )
    yield GroupCommand(
        "spark",
        "The Sparks that stay on this machine between runs with the warm engine",
        (
            _command("status", "spark.status", "Show them: version, age, runs, memory, sessions"),
            _command("start", "spark.start", "Start one, so that the first run need not", file),
            _command("stop", "spark.stop", "Stop those of this user; one that has runs ends after them", force),
        ),
    )


def _role_commands() -> Iterable[CLICommand]:
    reader = arg("--reader", default="ckpt_reader", metavar="ROLE", help="role that only reads (default: ckpt_reader)")
    yield _command(
        "ledger",
        "roles.ledger",
        "SQL for a ledger: its schema, and roles that migrate, run pipelines and read",
        arg("--schema", default="ckpt", help="the ledger's own schema (default: ckpt)"),
        arg("--owner", default="ckpt_owner", metavar="ROLE", help="role that migrates (default: ckpt_owner)"),
        arg(
            "--runtime", default="ckpt_runtime", metavar="ROLE", help="role that runs pipelines (default: ckpt_runtime)"
        ),
        reader,
        more="Run it before the first migration, and again after every one.",
    )
    yield _command(
        "sink",
        "roles.sink",
        "SQL for targets: a role that writes to them and cannot create objects",
        arg("schema", help="the schema of the targets"),
        arg("--table", action="append", metavar="NAME", help="a target in the schema; repeatable"),
        arg("--upsert", action="store_true", help="pipelines replace rows by key there"),
        arg(
            "--pipeline",
            action="append",
            metavar="NAME",
            help="a pipeline that runs as the writer; repeatable",
        ),
        arg("--writer", default="ckpt_writer", metavar="ROLE", help="role that writes (default: ckpt_writer)"),
        reader,
        more="It creates the sink's bookkeeping tables beside the targets; the writer sees only the rows of its own "
        "pipelines there. If it is run again with fewer tables or pipelines, it revokes the rest; with none, "
        "everything.",
    )
    yield _command(
        "source",
        "roles.source",
        "SQL for sources: a role that reads tables, and sees whether a failover of the server lost anything",
        arg("schema", help="the schema of the tables"),
        arg("--table", action="append", metavar="NAME", help="a table in it; may be given again"),
        arg("--reader", default="ckpt_source", metavar="ROLE", help="reads (default: ckpt_source)"),
        more="To be run as a superuser. It makes a function that returns the places at which the server's timelines "
        "parted, and nothing else; only the role may call it.",
    )
