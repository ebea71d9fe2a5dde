"""``airflow ckpt`` and what is below it; a command itself is imported when it is called."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_provider_ckpt.cli import arguments as given
from airflow_provider_ckpt.cli.arguments import arg

_COMMANDS = "airflow_provider_ckpt.cli"


def get_ckpt_commands() -> list[CLICommand]:
    """Every ``airflow ckpt`` command; named in the provider's info."""
    commands = (*_running(), *_looking(), *_phases(), *_batches(), *_again(), *_sinks(), *_dead_letters(), *_keeping())
    return [GroupCommand("ckpt", "Checkpointed replication: pipelines and the ledger", commands)]


def _command(name: str, function: str, text: str, *args: Arg, more: str | None = None) -> ActionCommand:
    """A command that is imported when it is called.

    :param function: module and function below ``cli``
    :param more: follows the first line of the command's own help
    """
    description = f"{text}. {more}" if more else None
    return ActionCommand(
        name, text, lazy_load_command(f"{_COMMANDS}.{function}"), (*args, *given.COMMON), description=description
    )


def _running() -> Iterable[CLICommand]:
    yield _command(
        "run",
        "run.run",
        "Replicate whatever is new, once",
        given.FILE,
        more="One run of a pipeline without a DAG: the same code, the same ledger. "
        "Exit status 0 if it ended with nothing held, or run.fail_on_hold is false; else 1.",
    )

    yield _command(
        "validate",
        "validation.validate",
        "Check pipelines' YAML files",
        arg("files", nargs="+", metavar="FILE", help="a pipeline's YAML file"),
        arg("--connect", action="store_true", help="also ask source and sink whether they fit; changes nothing there"),
        more="Exit status 1 if any file does not hold.",
    )
    yield _command(
        "plan",
        "plan.plan",
        "Say what a run would do, and change nothing",
        given.FILE,
        more="Partitions, ranges, batches and records as the source stands now, and work that waits or is held.",
    )


def _looking() -> Iterable[CLICommand]:
    what = arg("what", nargs="?", metavar="BATCH", help="a batch (partition#seq) or a partition (default: all of it)")
    quick = arg("--quick", action="store_true", help="leave out what only the whole history can show")
    sink = arg("--against-sink", action="store_true", help="also recount receipts, dead letters and rows in the sink")
    shared = arg("--shared-target", action="store_true", help="others write to the target too: do not count its rows")
    yield _command("status", "status.show", "Say where a pipeline stands", given.PIPELINE)
    yield _command(
        "inspect",
        "inspect_.inspect",
        "Show a batch, a partition, or everything that is not resolved",
        given.PIPELINE,
        what,
        more="Of a batch: its state, attempts, receipt and newest error.",
    )
    yield _command(
        "audit",
        "audit.audit",
        "Check every invariant and account for every position",
        *(given.PIPELINE, quick, sink, shared, given.DECLARATION),
        more="Exit status 1 if anything does not hold, or ledger and sink disagree.",
    )


def _phases() -> Iterable[CLICommand]:
    force = arg("--force", action="store_true", help="abandon what is in flight and fence it; needs --reason")
    yield _command(
        "drain",
        "phases.drain",
        "Begin nothing more, and let what is in flight end",
        *(given.PIPELINE, given.WHY, given.DRY_RUN),
    )
    yield _command(
        "stop",
        "phases.stop",
        "Drain, and stop as soon as nothing is in flight",
        *(given.PIPELINE, force, given.WHY, given.DRY_RUN, given.DECLARATION),
        more="Planned and held batches stay where they are and go on blocking the checkpoint.",
    )
    yield _command(
        "resume",
        "phases.resume",
        "Let a draining or stopped pipeline run again",
        *(given.PIPELINE, given.WHY, given.DRY_RUN),
    )


def _batches() -> Iterable[CLICommand]:
    some = arg("batch", nargs="*", metavar="BATCH", help="partition#seq, as `airflow ckpt inspect` shows it")
    every = arg("--all", action="store_true", help="all that are held")
    yield _command(
        "hold",
        "batches.hold",
        "Put batches aside; they go on blocking the checkpoint",
        *(given.PIPELINE, given.BATCHES, given.WHY, given.DRY_RUN),
    )
    yield _command(
        "release",
        "batches.release",
        "Give held batches their attempts back",
        *(given.PIPELINE, some, every, given.WHY, given.DRY_RUN),
    )
    yield _command(
        "skip",
        "batches.skip",
        "Give batches up: their records are not delivered",
        *(given.PIPELINE, given.BATCHES, given.MUST_SAY_WHY, given.DRY_RUN),
        more="A batch that was ever begun is skipped by claiming `void` in the sink, which the next run does; "
        "if it was delivered after all, its receipt stands.",
    )


def _again() -> Iterable[CLICommand]:
    yield _command(
        "rewind",
        "rewind.rewind",
        "Set the checkpoint back, so that what follows is read and delivered again",
        *(given.PIPELINE, given.PARTITION),
        arg("--to-position", type=given.position, metavar="N", help="the first position to read again"),
        arg("--to-time", metavar="TIME", help="back to where the checkpoint stood then (ISO 8601; UTC if no zone)"),
        arg("--to-batch", metavar="BATCH", help="the batch to read again first, by its receipt in the sink"),
        *(given.MUST_SAY_WHY, given.DRY_RUN, given.DECLARATION),
        more="A new generation begins; what was unresolved is superseded. A sink that appends gets the rows twice.",
    )
    span = (
        arg("--from", dest="start", type=given.position, required=True, metavar="N", help="the first position"),
        arg(
            "--to",
            dest="end",
            type=given.position,
            required=True,
            metavar="M",
            help="where to end: the first position left out",
        ),
    )
    replayed = arg(
        "--with-replayed",
        action="store_true",
        help="also what a replay of dead letters has delivered, though a sink that appends gets it twice",
    )
    yield GroupCommand(
        "replay",
        "Read something once more, beside the stream",
        (
            _command(
                "range",
                "rewind.replay_range",
                "Read a stretch below the checkpoint once more",
                *(given.PIPELINE, given.PARTITION, *span, replayed, given.WHY, given.DRY_RUN, given.DECLARATION),
                more="The checkpoint stays. A sink that appends gets the rows twice.",
            ),
        ),
    )
    yield _command(
        "recover",
        "recovery.recover",
        "Find what is unaccounted for, and have it read again",
        *(given.PIPELINE, given.WHY, given.DRY_RUN, given.DECLARATION),
    )
    yield _command(
        "adopt",
        "recovery.adopt",
        "Go on under another ledger's receipts in the sink",
        given.PIPELINE,
        arg("--ledger-id", required=True, metavar="ID", help="the other ledger, as the refusal of a run names it"),
        *(given.MUST_SAY_WHY, given.DRY_RUN, given.DECLARATION),
        more="For a ledger that was lost: give --file where this one has never run the pipeline.",
    )


def _sinks() -> Iterable[CLICommand]:
    yield _command(
        "accept-sink",
        "sinks.accept_sink",
        "Go on with a sink that lost commits, was emptied or made anew",
        given.PIPELINE,
        arg("--resend", action="store_true", help="send again exactly what the sink has no receipt for"),
        arg("--keep", action="store_true", help="go on from the checkpoint; what is lost stays lost"),
        arg(
            "--from",
            dest="start",
            action="append",
            metavar="[PARTITION=]N",
            help="with --resend: send again from this position on, where receipts do not tell what is lost",
        ),
        *(given.MUST_SAY_WHY, given.DRY_RUN, given.DECLARATION),
        more="For a pipeline whose runs are refused since the sink is not as this ledger left it. --dry-run says what "
        "would be sent again.",
    )
    yield _command(
        "move",
        "sinks.move",
        "Let the next run deliver to another sink than so far",
        given.PIPELINE,
        arg("--unreachable", action="store_true", help="the sink so far cannot be asked any more; see the runbook"),
        *(given.MUST_SAY_WHY, given.DRY_RUN, given.DECLARATION),
        more="Settles with the sink so far (its stored declaration, or --file). Then the sink that the next run "
        "declares is the pipeline's, from the checkpoint on.",
    )


def _dead_letters() -> Iterable[CLICommand]:
    every = arg("--all", action="store_true", help="those that were replayed or discarded as well")
    to = arg("--to", required=True, metavar="FILE", help="a file that is not there yet")
    looking = (given.PIPELINE, *given.LETTERS, every)
    yield GroupCommand(
        "dlq",
        "Dead letters: look at them, send them once more, give them up",
        (
            _command(
                "list",
                "dlq.list_all",
                "Say how many there are, and what became of them",
                *looking,
                given.DECLARATION,
            ),
            _command(
                "show",
                "dlq.show",
                "Show them, with their bytes and errors",
                *looking,
                given.QUERY,
                given.DECLARATION,
            ),
            _command("export", "dlq.export", "Write them to a file", to, *looking, given.QUERY, given.DECLARATION),
            _command(
                "replay",
                "dlq.replay",
                "Send them once more",
                *(given.PIPELINE, *given.LETTERS, given.QUERY, given.WHY, given.DRY_RUN, given.DECLARATION),
                more="Through the pipeline as it stands now, beside the stream. What fails again is parked again.",
            ),
            _command(
                "discard",
                "dlq.discard",
                "Give them up; the sink keeps them",
                *(given.PIPELINE, *given.LETTERS, given.QUERY, given.MUST_SAY_WHY, given.DRY_RUN, given.DECLARATION),
            ),
        ),
    )


def _keeping() -> Iterable[CLICommand]:
    breaking = arg("--break", dest="break_lease", action="store_true", help="take it from its owner; needs --reason")
    some = arg("pipeline", nargs="?", help="the pipeline's name")
    every = arg("--all", action="store_true", help="all pipelines")
    keep = arg("--keep", default="30d", metavar="SPAN", help="how much of the past to keep, such as 30d (default)")
    yield _command(
        "lease",
        "lease.lease",
        "Say who may run a pipeline, or take that right away",
        *(given.PIPELINE, breaking, given.WHY, given.DRY_RUN),
    )
    yield _command(
        "gc",
        "gc.gc",
        "Delete history that recovery does not need",
        *(some, every, keep, given.WHY, given.DRY_RUN),
    )
    yield GroupCommand(
        "pipeline",
        "The pipelines that the ledger knows",
        (
            _command("list", "pipelines.list_all", "List them with phase, lease and batches"),
            _command("show", "pipelines.show", "Show a pipeline's declaration and partitions", given.PIPELINE),
            _command(
                "delete",
                "pipelines.delete",
                "Forget a pipeline; sink and audit trail stay",
                *(given.PIPELINE, given.MUST_SAY_WHY, given.YES, given.DRY_RUN),
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
                "Take the ledger back to an older revision",
                arg("revision", help="such as 0001; base drops the tables and all that they hold"),
                *(given.YES, given.DRY_RUN),
                more="For going back to an older version of the package.",
            ),
            GroupCommand(
                "roles", "Print SQL for PostgreSQL roles with few rights; connects to nothing", tuple(_roles())
            ),
        ),
    )


def _roles() -> Iterable[CLICommand]:
    reader = arg("--reader", default="ckpt_reader", metavar="ROLE", help="may only look (default: ckpt_reader)")
    yield _command(
        "ledger",
        "roles.ledger",
        "SQL for a ledger: a schema of its own, and roles that migrate, run and look on",
        arg("--schema", default="ckpt", help="the ledger's own schema (default: ckpt)"),
        arg("--owner", default="ckpt_owner", metavar="ROLE", help="migrates (default: ckpt_owner)"),
        arg("--runtime", default="ckpt_runtime", metavar="ROLE", help="runs pipelines (default: ckpt_runtime)"),
        reader,
        more="To be run before the first migration, and again after every one.",
    )
    yield _command(
        "sink",
        "roles.sink",
        "SQL for targets: a role that writes to them and may create nothing",
        arg("schema", help="the schema of the targets"),
        arg("--table", action="append", metavar="NAME", help="a target in it; may be given again"),
        arg("--upsert", action="store_true", help="pipelines replace rows by key there"),
        arg(
            "--pipeline", action="append", metavar="NAME", help="a pipeline that runs as the writer; may be given again"
        ),
        arg("--writer", default="ckpt_writer", metavar="ROLE", help="writes (default: ckpt_writer)"),
        reader,
        more="It makes the sink's bookkeeping tables beside the targets, where the writer sees its own pipelines "
        "alone. Run again with fewer tables or pipelines, it takes back the rest; with none, everything.",
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
