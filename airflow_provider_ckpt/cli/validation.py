"""``airflow ckpt validate FILE...``: check declarations, with ``--connect`` against source and sink as well."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.errors import ConfigError


def _table(result: dict[str, Any], out: TextIO) -> None:
    for item in result["files"]:
        lines = [*(("problem", line) for line in item["problems"]), *(("warning", line) for line in item["warnings"])]
        write_table([("file", item["file"]), ("pipeline", item["pipeline"]), ("valid", item["valid"]), *lines], out)


@command(_table)
def validate(args: Namespace) -> dict[str, Any]:
    """Validate the YAML files of pipelines, and return the problems and warnings of each, JSON-ready.

    With ``--connect`` the declarations are also checked against source and sink; nothing is changed there.

    :raises FailedError: if any file is invalid; it contains the result
    """
    files: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for file in args.files:
        checked = _check_file(file, connect=args.connect)
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


def _check_file(file: str, *, connect: bool) -> dict[str, Any]:
    from airflow_provider_ckpt.config.load import load
    from airflow_provider_ckpt.config.warnings import warnings
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.replication.observe.preview import find_problems
    from airflow_provider_ckpt.schedules import schedule_problem

    try:
        pipeline = load(file)
    except ConfigError as error:
        return _result(file, None, error.message.split("\n"), [])
    schedule = schedule_problem(pipeline.dag.schedule) if pipeline.dag else None
    found = [schedule] if schedule else []
    found += find_problems(pipeline, resolve_connection) if connect else []
    return _result(file, pipeline.name, found, warnings(pipeline))


def _result(file: str, pipeline: str | None, problems: list[str], warnings: list[str]) -> dict[str, Any]:
    return {"file": file, "pipeline": pipeline, "valid": not problems, "problems": problems, "warnings": warnings}
