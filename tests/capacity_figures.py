"""Write the figures of ``make bench-many`` as paragraphs and tables of ``docs/capacity.rst``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.assurance import FOLDER

EXECUTORS = {"LocalExecutor": "scheduler", "CeleryExecutor": "worker"}
"""The service that starts the tasks, by executor."""


def insert(page: str, folder: Path = FOLDER) -> str:
    """Return the text of the page with ``|files|``, ``|pipelines|`` and ``|ledger|`` replaced by recorded figures.

    :param page: the page in reStructuredText
    :param folder: directory of the records
    """
    path = folder / "bench-many.json"
    found = json.loads(path.read_text("utf-8")) if path.is_file() else None
    for name, told in PARTS.items():
        page = page.replace(f"|{name}|", f"{told(found['figures'])}\n\n{_when(found)}" if found else _NEVER)
    return page


_NEVER = "*The figures are missing here:* ``make bench-many`` *was never run whole.*"


def _when(found: dict[str, Any]) -> str:
    load = found["figures"]["load"]
    return f"*At {found['commit']}, {found['day']}; load average of the machine before: {load:.1f}.*"


def _files(figures: dict[str, Any]) -> str:
    files = figures["files"]
    return (
        f"A folder of {files['files']} files, a third of them task groups: the DAG processor parses it in "
        f"{files['parse_seconds']:.1f} s of processor time and serializes its DAGs in "
        f"{files['serialize_seconds']:.1f} s, with {files['parse_mib']:.0f} MiB more than for one file. A task needs "
        f"{files['task_seconds']:.2f} s to find its DAG in that folder, and "
        f"{files['task_seconds_with_one_file']:.2f} s in a folder with one file."
    )


def _pipelines(figures: dict[str, Any]) -> str:
    found = figures["pipelines"]
    lines = [
        (
            f"{found['at_once']} pipelines, triggered at once, each with {found['rows']:,} new rows from PostgreSQL to "
            f"PostgreSQL and a table of its own, in a pool of {found['pool_slots']} slots, all in one standing driver:"
        ),
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *_row("", *EXECUTORS),
        *_row("all runs together", *(f"{found[name]['seconds']:.0f} s" for name in EXECUTORS)),
    ]
    for key, words in (
        ("task_seconds", "a task, median and maximum"),
        ("waiting_seconds", "its wait for a slot, median and maximum"),
    ):
        values = [found[name][key] for name in EXECUTORS]
        lines += _row(words, *(f"{value['p50']:.1f}, {value['max']:.1f} s" for value in values))
    for key, words in (
        ("executor_mib", "memory of the executor's processes, those of tasks among them, at most"),
        ("driver_mib", "memory of the driver, at most"),
    ):
        lines += _row(words, *(f"{found[name][key]:.0f} MiB" for name in EXECUTORS))
    return "\n".join(lines)


def _ledger(figures: dict[str, Any]) -> str:
    postgres, sqlite = figures["ledger"]["postgres"], figures["ledger"]["sqlite"]
    command, wait = postgres["command_ms"], postgres["lock_wait_ms"]
    return (
        f"{postgres['at_once']} runs at once on one PostgreSQL, with renewals, status queries and requests for the "
        f"lease beside each: {postgres['commands_per_second']:.0f} commands a second, {command['p50']:.0f} ms at the "
        f"median and {command['p99']:.0f} ms at the 99th percentile. Waits for a lock that took a millisecond or more: "
        f"{postgres['lock_waits']:,} beside {postgres['commands']:,} commands, {wait['p50']:.0f} ms at the median, "
        f"{wait['p99']:.0f} ms at the 99th percentile, {wait['max']:.0f} ms at most; deadlocks: "
        f"{postgres['deadlocks']}; waits for another pipeline's lock: {postgres['waits_between_pipelines']}. On SQLite "
        f"{sqlite['commands_per_second']:.0f} commands a second, {sqlite['command_ms']['p99'] / 1000:.1f} s at the "
        f"99th percentile, {sqlite['command_ms']['max'] / 1000:.1f} s at most."
    )


def _row(first: str, *others: str) -> list[str]:
    return [f"   * - {first}", *(f"     - {cell}" for cell in others)]


PARTS: Mapping[str, Callable[[dict[str, Any]], str]] = {"files": _files, "pipelines": _pipelines, "ledger": _ledger}
"""Functions that tell the figures, by the name of its place in the page and of the figures."""
