"""``airflow ckpt validate FILE...``: check declarations, with ``--connect`` against source and sink as well."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.errors import CkptError, ConfigError


def _table(result: dict[str, Any], out: TextIO) -> None:
    for item in result["files"]:
        lines = [*(("problem", line) for line in item["problems"]), *(("warning", line) for line in item["warnings"])]
        write_table([("file", item["file"]), ("pipeline", item["pipeline"]), ("valid", item["valid"]), *lines], out)


@command(_table)
def validate(args: Namespace) -> dict[str, Any]:
    """Validate YAML files that declare pipelines or many tables; return the problems and warnings by file, JSON-ready.

    With ``--connect`` the declarations are also checked against source and sink; nothing is changed there. With
    ``--conformance`` the conformance suite of sinks runs beside the target, in tables that it creates and drops; tables
    for receipts that it had to create remain.

    :raises FailedError: if any file is invalid; it contains the result
    """
    files: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for file in args.files:
        checked = _check_file(file, connect=args.connect, conformance=args.conformance)
        name = checked["pipeline"]
        if name is not None and name in names:
            checked["problems"].append(f"{names[name]} declares pipeline {name!r} as well; rename one of them")
            checked["valid"] = False
        names.setdefault(name, file)
        files.append(checked)
    wrong = [item["file"] for item in files if not item["valid"]]
    result = {"valid": not wrong, "connected": bool(args.connect), "files": files}
    if wrong:
        raise FailedError(f"{len(wrong)} of {len(files)} files are invalid: {', '.join(wrong)}", result)
    return result


def _check_file(file: str, *, connect: bool, conformance: bool) -> dict[str, Any]:
    from airflow_provider_ckpt.cli.conformance import find_nonconformities
    from airflow_provider_ckpt.config.load import load
    from airflow_provider_ckpt.config.outline import declares_many_tables
    from airflow_provider_ckpt.config.warnings import warnings
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.replication.observe.preview import find_problems
    from airflow_provider_ckpt.schedules import schedule_problem

    if declares_many_tables(Path(file)):
        return _check_database(file, connect=connect)
    try:
        pipeline = load(file)
    except ConfigError as error:
        return _result(file, None, error.message.split("\n"), [])
    schedule = schedule_problem(pipeline.dag.schedule) if pipeline.dag else None
    found = [schedule] if schedule else []
    found += find_problems(pipeline, resolve_connection) if connect else []
    found += find_nonconformities(file, pipeline) if conformance else []
    return _result(file, pipeline.name, found, warnings(pipeline))


def _check_database(file: str, *, connect: bool) -> dict[str, Any]:
    """Check a declaration of many tables, and return the result with all problems that were found, JSON-ready.

    :param file: YAML file with the declaration
    :param connect: whether to check the declaration against the tables of the source as well
    """
    from airflow_provider_ckpt.config.database.expand import expand
    from airflow_provider_ckpt.config.database.load import load
    from airflow_provider_ckpt.connectors import registry
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.schedules import schedule_problem

    try:
        database = load(file)
    except ConfigError as error:
        return _result(file, None, error.message.split("\n"), [])
    schedule = schedule_problem(database.dag.schedule) if database.dag else None
    found = [schedule] if schedule else []
    if connect:
        try:
            connection = resolve_connection(database.connection) if database.connection else None
            with closing(registry.open_database(database, connection)) as source:
                expansion = expand(database, source.read_catalog())
        except CkptError as error:
            return _result(file, database.name, [*found, str(error)], [])
        errors = [*expansion.errors.values(), *filter(None, [expansion.halted])]
        found += [line for error in errors for line in error.message.split("\n")]
    return _result(file, database.name, found, [])


def _result(file: str, pipeline: str | None, problems: list[str], warnings: list[str]) -> dict[str, Any]:
    return {"file": file, "pipeline": pipeline, "valid": not problems, "problems": problems, "warnings": warnings}
