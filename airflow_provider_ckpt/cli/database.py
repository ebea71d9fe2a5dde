"""``airflow ckpt database show|run|status FILE``: replicate many tables of a database, which one file declares."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.lag import NOT_BEGUN

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.expansion import Expansion
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.observe.tables_with_work import TablesWithWork

log = logging.getLogger(__name__)

_MOST_NAMES = 10
"""Maximum number of tables that an error or a table cell names; further tables are only counted."""


def _shown(result: dict[str, Any], out: TextIO) -> None:
    """Write the result of ``show`` as tables: the tables that each pattern matches, their new records, and errors."""
    patterns = [
        ("exclude" if item["excludes"] else "include", item["pattern"], len(item["tables"]), _names(item["tables"]))
        for item in result["patterns"]
    ]
    write_table(patterns, out, ("", "pattern", "tables", ""))
    tables = [
        (item["table"], item["pipeline"], item["new_records"], "yes" if item["has_work"] else "", item["error"])
        for item in result["tables"]
    ]
    write_table(tables, out, ("table", "pipeline", "new records", "runs", "error"))
    lists = [(kind, _names(result[kind])) for kind in ("new", "ignored", "gone") if result[kind]]
    errors = [(pattern, error) for pattern, error in result["errors"].items()]
    write_table([*lists, *errors, *([("halted", result["halted"])] if result["halted"] else [])], out)


@command(_shown)
def show(args: Namespace) -> dict[str, Any]:
    """Show the tables that the declaration ``args.file`` selects, and their numbers of new records; nothing is changed.

    :return: JSON-ready dict: each pattern with its tables, the selected tables, the errors, and three lists of tables:
        ``new`` (appeared after the first run, are replicated), ``ignored`` (appeared after the first run, are left out)
        and ``gone`` (no longer exist)
    :raises FailedError: if a table or a pattern has an error, no table is selected, or ``new_tables`` or
        ``gone_tables`` halts runs; it contains the result
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        found = _find_tables(args.file, ledger)
    expansion = found.expansion
    errors = {name: str(error) for name, error in expansion.errors.items()}
    document = {
        "patterns": [
            {"pattern": match.pattern, "excludes": match.excludes, "tables": list(match.tables)}
            for match in expansion.matches
        ],
        "tables": [
            {
                "table": label,
                "pipeline": name,
                "new_records": None if label in errors else found.work.get(label, 0),
                "has_work": label in found.work,
                "error": errors.pop(label, None),
            }
            for label, name in expansion.names.items()
        ],
        "new": list(expansion.new),
        "ignored": list(expansion.ignored),
        "gone": list(expansion.gone),
        "errors": errors,
        "halted": str(expansion.halted) if expansion.halted else None,
    }
    if expansion.halted is not None:
        raise FailedError(str(expansion.halted), document)
    if expansion.errors:
        raise FailedError(_failed(list(expansion.errors), len(expansion.names)), document)
    return document


def _run_table(result: dict[str, Any], out: TextIO) -> None:
    """Write the result of ``run``: a line for each table that ran or failed, and the number of the other tables."""
    rows = []
    for item in result["tables"]:
        summary = item["summary"]
        records = (summary or {}).get("records", {})
        seconds = summary["seconds"] if summary else None
        counts = (records.get("delivered"), records.get("dead_lettered"))
        rows.append((item["table"], item["state"], *counts, seconds, item["error"]))
    write_table(rows, out, ("table", "state", "delivered", "dead-lettered", "seconds", "error"))
    write_table([("tables without new records", result["without_new_records"])], out)


@command(_run_table)
def run(args: Namespace) -> dict[str, Any]:
    """Run the tables of ``args.file`` that have new records, or with ``args.all`` all tables, in this process.

    :return: JSON-ready: the result of each table that ran or has an error, and the number of tables without new records
    :raises ConfigError: if the declaration is invalid, no table is selected, or ``new_tables`` or ``gone_tables`` halts
        the run
    :raises FailedError: if any table failed; it contains the result
    """
    from airflow_provider_ckpt.cli.context import make_context
    from airflow_provider_ckpt.engines.several_runs import run_several
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        found = _find_tables(args.file, ledger)
        expansion = found.expansion
        expansion.refuse_halted()
        _log_changes(expansion)
        ledger.register(expansion.names.values())
        labels = found.in_order
        if args.all:
            labels += [label for label in expansion.pipelines if label not in found.work]
        setups = {label: make_context(expansion.pipelines[label], ledger) for label in labels}
        lanes = found.database.settings.lanes_per_table
        ended = run_several(setups, args.at_once, lanes_each=lanes)
    results = [
        {"table": label, "pipeline": expansion.names[label], **asdict(result)} for label, result in ended.items()
    ]
    results += [
        {"table": name, "pipeline": expansion.names.get(name), "state": "failed", "error": str(error), "summary": None}
        for name, error in expansion.errors.items()
    ]
    results.sort(key=lambda item: str(item["table"]))
    document = {"tables": results, "without_new_records": len(expansion.pipelines) - len(ended)}
    failed = [str(item["table"]) for item in results if item["state"] != "done"]
    if failed:
        raise FailedError(_failed(failed, len(expansion.names)), document)
    return document


def _status_table(result: dict[str, Any], out: TextIO) -> None:
    keys = ("table", "phase", "lag", "planned", "in_flight", "held", "parked")
    rows = [tuple(NOT_BEGUN if item[key] is None else item[key] for key in keys) for item in result["tables"]]
    write_table(rows, out, ("table", "phase", "lag", "planned", "in flight", "held", "dead letters"))
    failed = [(item["table"], item["failed_since"], item["error"]) for item in result["tables"] if item["error"]]
    if failed:
        write_table(failed, out, ("table", "last run failed, since", "error"))


@command(_status_table)
def status(args: Namespace) -> dict[str, Any]:
    """Return the state in the ledger of every table that ``args.file`` has ever replicated, JSON-ready.

    The source is not read.
    """
    from airflow_provider_ckpt.config.database.load import load
    from airflow_provider_ckpt.config.database.pipeline_names import table_of_pipeline
    from airflow_provider_ckpt.ledger_location import open_ledger

    database = load(args.file)
    with open_ledger(args.ledger) as ledger:
        pipelines = [item for item in ledger.overview().pipelines if item.name.startswith(f"{database.name}.")]
        failed = ledger.failed_runs(f"{database.name}.")
    return {
        "database": database.name,
        "tables": [
            {
                "table": table_of_pipeline(database.name, item.name) or item.name,
                "pipeline": item.name,
                "phase": item.phase,
                "lag": item.lag,
                "planned": item.planned,
                "in_flight": item.in_flight,
                "held": item.held,
                "parked": item.parked,
                "error": failed[item.name].error if item.name in failed else None,
                "failed_since": failed[item.name].since.isoformat() if item.name in failed else None,
            }
            for item in pipelines
        ],
    }


def _find_tables(file: str, ledger: Ledger) -> TablesWithWork:
    from airflow_provider_ckpt.config.database.load import load
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.replication.observe.tables_with_work import find_tables_with_work

    return find_tables_with_work(load(file), ledger, resolve_connection)


def _log_changes(expansion: Expansion) -> None:
    for text, labels in (
        ("appeared and are replicated from now on", expansion.new),
        ("appeared and are left out, because of new_tables: ignore", expansion.ignored),
        ("are gone from the source", expansion.gone),
    ):
        if labels:
            log.warning("%d tables %s: %s", len(labels), text, _names(labels))


def _failed(names: Sequence[str], count: int) -> str:
    return f"{len(names)} of {count} tables failed: {_names(names)}"


def _names(labels: Sequence[str]) -> str:
    more = len(labels) - _MOST_NAMES
    return ", ".join(labels[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
