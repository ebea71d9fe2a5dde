"""Definition of ``airflow ckpt`` and its subcommands, in the form of Airflow's parser.

The module of a command is imported when the command is called, because every ``airflow`` call imports this module.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_provider_ckpt.cli import arguments as common
from airflow_provider_ckpt.cli.arguments import arg

_COMMANDS = "airflow_provider_ckpt.cli"


def get_ckpt_commands() -> list[CLICommand]:
    """Return the group ``airflow ckpt`` with all of its commands; Airflow finds this function by the provider info."""
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
    :param function: module and function below ``cli``, such as ``run.run``
    :param text: first line of the help
    :param args: arguments, in addition to those of every command
    :param more: further text of the command's own help; None for none
    """
    description = f"{text}. {more}" if more else None
    return ActionCommand(
        name, text, lazy_load_command(f"{_COMMANDS}.{function}"), (*args, *common.COMMON), description=description
    )


def _run_commands() -> Iterable[CLICommand]:
    yield _command(
        "run",
        "run.run",
        "Run a pipeline once: replicate all new records",
        common.FILE,
        more="The run needs no DAG; it uses the same code and the same ledger as the tasks of a DAG. The exit status "
        "is 1 if the run failed, or if it held a batch and run.fail_on_hold is true; else 0.",
    )

    yield _command(
        "validate",
        "validation.validate",
        "Check the YAML files of pipelines",
        arg("files", nargs="+", metavar="FILE", help="YAML file of a pipeline"),
        arg(
            "--connect",
            action="store_true",
            help="also connect to source and sink, and check that they fit the pipeline; changes nothing there",
        ),
        more="The exit status is 1 if any file is invalid.",
    )
    yield _command(
        "plan",
        "plan.plan",
        "Show what a run would do, without changing anything",
        common.FILE,
        more="It shows the partitions, ranges, batches and records that a run would plan from the source as it is now, "
        "and the batches that wait for another attempt or are held.",
    )


def _inspection_commands() -> Iterable[CLICommand]:
    what = arg(
        "what",
        nargs="?",
        metavar="BATCH",
        help="a batch (partition#seq) or a partition (default: all unresolved batches)",
    )
    quick = arg("--quick", action="store_true", help="omit the checks that read the whole history")
    sink = arg(
        "--against-sink",
        action="store_true",
        help="also compare the ledger with the sink's receipts, dead letters and rows",
    )
    shared = arg(
        "--shared-target", action="store_true", help="do not count the target's rows, because others write to it too"
    )
    yield _command(
        "status", "status.show", "Show the state of a pipeline: phase, lease, lag, batches, events", common.PIPELINE
    )
    yield _command(
        "inspect",
        "inspect_.inspect",
        "Show a batch, a partition, or all unresolved batches",
        common.PIPELINE,
        what,
        more="A batch is shown with its state, attempts, receipt and newest error.",
    )
    yield _command(
        "audit",
        "audit.audit",
        "Check the ledger's invariants, and account for every source position",
        *(common.PIPELINE, quick, sink, shared, common.DECLARATION),
        more="The exit status is 1 if an invariant is violated, or if ledger and sink differ.",
    )


def _phase_commands() -> Iterable[CLICommand]:
    force = arg("--force", action="store_true", help="abandon the batches in flight and fence the sink; needs --reason")
    yield _command(
        "drain",
        "phases.drain",
        "Drain a pipeline: plan and start nothing more, and let the batches in flight end",
        *(common.PIPELINE, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "stop",
        "phases.stop",
        "Drain a pipeline, and stop it if no batch is in flight",
        *(common.PIPELINE, force, common.REASON, common.DRY_RUN, common.DECLARATION),
        more="If batches are in flight, the command fails and leaves the pipeline draining; repeat it after the next "
        "run. Planned and held batches remain, and continue to block the checkpoint.",
    )
    yield _command(
        "resume",
        "phases.resume",
        "Let a draining or stopped pipeline run again",
        *(common.PIPELINE, common.REASON, common.DRY_RUN),
    )


def _batch_commands() -> Iterable[CLICommand]:
    some = arg("batch", nargs="*", metavar="BATCH", help="a batch, partition#seq as `airflow ckpt inspect` shows it")
    every = arg("--all", action="store_true", help="all held batches")
    yield _command(
        "hold",
        "batches.hold",
        "Hold batches: do not send them until they are released or skipped",
        *(common.PIPELINE, common.BATCHES, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "release",
        "batches.release",
        "Release held batches: plan them again, with the full number of attempts",
        *(common.PIPELINE, some, every, common.REASON, common.DRY_RUN),
    )
    yield _command(
        "skip",
        "batches.skip",
        "Skip batches: give them up, without delivering their records",
        *(common.PIPELINE, common.BATCHES, common.REQUIRED_REASON, common.DRY_RUN),
        more="A batch that was never started is skipped in the ledger. For any other batch, the next run claims the "
        "verdict `void` in the sink; if the batch was delivered after all, its receipt there remains valid.",
    )


def _reread_commands() -> Iterable[CLICommand]:
    yield _command(
        "rewind",
        "rewind.rewind",
        "Move the checkpoint back, so that the records after it are read and delivered again",
        *(common.PIPELINE, common.PARTITION),
        arg(
            "--to-position", type=common.position, metavar="N", help="rewind to this position, the first to read again"
        ),
        arg("--to-time", metavar="TIME", help="rewind to the checkpoint at this time (ISO 8601; UTC if no zone)"),
        arg(
            "--to-batch",
            metavar="BATCH",
            help="rewind to the beginning of this batch, as its receipt in the sink shows it",
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="A new generation begins at that position, and unresolved batches are superseded. A sink that appends "
        "gets the rows twice. Give exactly one of --to-position, --to-time and --to-batch.",
    )
    span = (
        arg(
            "--from", dest="start", type=common.position, required=True, metavar="N", help="the first position to read"
        ),
        arg(
            "--to",
            dest="end",
            type=common.position,
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
            _command(
                "range",
                "replay_range.replay_range",
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
                more="The range is read in a side partition, so the checkpoint does not move. A sink that appends gets "
                "the rows twice.",
            ),
        ),
    )
    yield _command(
        "recover",
        "recover.recover",
        "Find records that neither a receipt nor a batch accounts for, and read them again",
        *(common.PIPELINE, common.REASON, common.DRY_RUN, common.DECLARATION),
        more="The next run reads them.",
    )
    yield _command(
        "adopt",
        "adopt.adopt",
        "Take over a pipeline whose receipts in the sink are another ledger's",
        common.PIPELINE,
        arg(
            "--ledger-id",
            required=True,
            metavar="ID",
            help="id of the other ledger, which the error of a refused run names",
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="Use it if the other ledger is lost. Give --file if this ledger has never run the pipeline.",
    )


def _sink_commands() -> Iterable[CLICommand]:
    yield _command(
        "accept-sink",
        "sinks.accept_sink",
        "Let runs continue with a sink that was restored, emptied or recreated",
        common.PIPELINE,
        arg("--resend", action="store_true", help="send again the ranges for which the sink has no receipt"),
        arg("--keep", action="store_true", help="continue from the checkpoint; lost records remain lost"),
        arg(
            "--from",
            dest="start",
            action="append",
            metavar="[PARTITION=]N",
            help="with --resend, if receipts do not show what is lost: send again from this position on; repeatable",
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="Use it if runs are refused because the sink is not as this ledger left it. Give one of --resend and "
        "--keep; --dry-run shows what would be sent again.",
    )
    yield _command(
        "move",
        "sinks.move",
        "Let the next run deliver to another sink",
        common.PIPELINE,
        arg(
            "--unreachable",
            action="store_true",
            help="do not read the previous sink, because it no longer exists or answers",
        ),
        *(common.REQUIRED_REASON, common.DRY_RUN, common.DECLARATION),
        more="The command settles the receipts of the previous sink, as the newest run (or --file) declares it. The "
        "next run delivers to the sink that its own declaration names, from the checkpoint on.",
    )


def _dead_letter_commands() -> Iterable[CLICommand]:
    every = arg("--all", action="store_true", help="include dead letters that were replayed or discarded")
    to = arg("--to", required=True, metavar="FILE", help="the file to write; it must not exist yet")
    looking = (common.PIPELINE, *common.DEAD_LETTER_SELECTION, every)
    yield GroupCommand(
        "dlq",
        "Show, replay and discard dead letters",
        (
            _command(
                "list",
                "dlq.list_all",
                "Show the numbers of dead letters and their states",
                *looking,
                common.DECLARATION,
            ),
            _command(
                "show",
                "dlq.show",
                "Show dead letters, with their original bytes and errors",
                *looking,
                common.QUERY,
                common.DECLARATION,
            ),
            _command(
                "export",
                "dlq.export",
                "Write dead letters to a file, as JSON lines",
                to,
                *looking,
                common.QUERY,
                common.DECLARATION,
            ),
            _command(
                "replay",
                "dlq.replay",
                "Send dead letters again",
                *(
                    common.PIPELINE,
                    *common.DEAD_LETTER_SELECTION,
                    common.QUERY,
                    common.REASON,
                    common.DRY_RUN,
                    common.DECLARATION,
                ),
                more="The next run sends them in a side partition, through the pipeline as it is declared then. A "
                "record that fails again is parked again.",
            ),
            _command(
                "discard",
                "dlq.discard",
                "Give dead letters up: mark them as discarded; the sink still stores them",
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
    breaking = arg(
        "--break", dest="break_lease", action="store_true", help="take the lease from its owner; needs --reason"
    )
    some = arg("pipeline", nargs="?", help="the pipeline's name")
    every = arg("--all", action="store_true", help="all pipelines")
    keep = arg("--keep", default="30d", metavar="SPAN", help="keep history younger than this (default: 30d)")
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
        "List, show and delete the ledger's pipelines",
        (
            _command("list", "pipelines.list_all", "List all pipelines with phase, lease and batches"),
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
            _command(
                "migrate", "db.migrate", "Create the ledger, or upgrade it to the revision that this version needs"
            ),
            _command(
                "check",
                "db.check",
                "Check that the ledger is at the revision that this version needs; exit status 1 if not",
            ),
            _command(
                "downgrade",
                "db.downgrade",
                "Downgrade the ledger to an older revision",
                arg("revision", help="revision such as 0001; base drops the tables and their content"),
                *(common.YES, common.DRY_RUN),
                more="Use it before an older version of the package is installed.",
            ),
            GroupCommand(
                "roles",
                "Print SQL that creates PostgreSQL roles with few privileges, without running it",
                tuple(_role_commands()),
            ),
        ),
    )


def _spark_commands() -> Iterable[CLICommand]:
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
            _command(
                "status", "spark.status", "Show your standing Spark drivers: version, age, runs, memory, sessions"
            ),
            _command(
                "start",
                "spark.start",
                "Start a standing Spark driver, so that the first run does not wait for it",
                file,
            ),
            _command("stop", "spark.stop", "Stop your standing Spark drivers; each ends after its current runs", force),
        ),
    )


def _role_commands() -> Iterable[CLICommand]:
    reader = arg("--reader", default="ckpt_reader", metavar="ROLE", help="role that only reads (default: ckpt_reader)")
    yield _command(
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
    yield _command(
        "sink",
        "roles.sink",
        "Print SQL for targets: a role that writes to them and cannot create objects",
        arg("schema", help="the schema of the targets"),
        arg("--table", action="append", metavar="NAME", help="a target table in the schema; repeatable"),
        arg("--upsert", action="store_true", help="let the role also replace rows, for sinks with mode: upsert"),
        arg(
            "--pipeline",
            action="append",
            metavar="NAME",
            help="a pipeline whose runs connect as the writer; repeatable",
        ),
        arg("--writer", default="ckpt_writer", metavar="ROLE", help="role that writes (default: ckpt_writer)"),
        reader,
        more="The SQL creates the sink's bookkeeping tables in the schema; the writer sees only the rows of its own "
        "pipelines there. If it is created and run again with fewer tables or pipelines, it revokes the privileges on "
        "the others; with none, it revokes all.",
    )
    yield _command(
        "source",
        "roles.source",
        "Print SQL for sources: a role that reads tables, and can tell whether a failover lost transactions",
        arg("schema", help="the schema of the tables"),
        arg("--table", action="append", metavar="NAME", help="a source table in the schema; repeatable"),
        arg("--reader", default="ckpt_source", metavar="ROLE", help="role that reads (default: ckpt_source)"),
        more="A superuser has to run the SQL. It creates a function that returns only the positions at which the "
        "timelines of the server's log diverged, and that only the role may call.",
    )
