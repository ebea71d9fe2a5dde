"""Write the report of the demo: a table of runs, an example of a dead letter, and where to read on."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

_COUNTS = ("read", "delivered", "filtered", "dead_lettered")
_SHOWN = 160


def table_of(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    """The runs side by side, narrow enough for any terminal.

    :param runs: what each run found new → its element of ``summary.json``
    """
    table = Table(box=SIMPLE, pad_edge=False, header_style="bold")
    table.add_column("")
    for number, new in enumerate(runs, start=1):
        table.add_column(f"run {number}: {new}", justify="right")
    found = list(runs.values())
    for name in _COUNTS:
        table.add_row(name.replace("_", "-"), *(f"{run['records'][name]:,}" for run in found))
    table.add_row("batches", *(str(run["batches"]) for run in found))
    table.add_row("route", *(", ".join(run["route"]) for run in found))
    table.add_row("Spark", *("started" if run["spark_started"] else "not started" for run in found))
    table.add_row("seconds", *(f"{run['seconds']:.1f}" for run in found))
    return table


def read_letters(directory: Path) -> list[dict[str, Any]]:
    """Every dead letter under a directory, in source order."""
    dead_letters = [json.loads(line) for path in directory.rglob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(dead_letters, key=lambda dead_letter: dead_letter["position"])


def show_letters(console: Console, directory: Path, dead_letters: Sequence[Mapping[str, Any]]) -> None:
    """Say how many dead letters of which kind are where, and show the first of each kind."""
    kinds = Counter((dead_letter["error_type"], dead_letter["message"]) for dead_letter in dead_letters)
    console.print(f"{len(dead_letters)} dead letters under {_here(directory)}", style="bold", soft_wrap=True)
    for (kind, message), count in kinds.most_common():
        first = next(
            dead_letter
            for dead_letter in dead_letters
            if (dead_letter["error_type"], dead_letter["message"]) == (kind, message)
        )
        headers = first["headers"]
        where = f"{Path(headers['x-ckpt-source-file']).name}, byte {headers['x-ckpt-source-position']}"
        console.print(f"  {count:>3} {kind}: {message}; the first at {where}", soft_wrap=True, highlight=False)
        value = base64.b64decode(first["value_base64"]).decode("utf-8", "backslashreplace")
        console.print(Text(f"      {_short(value)}", style="dim"), soft_wrap=True)
    console.print()


def write_environment(path: Path, env: Mapping[str, str]) -> None:
    """Write a shell script that makes ``airflow`` in a shell the demo's own."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in env.items()]
    path.write_text("".join([*lines, f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"\n']))


def show_next(console: Console, environment: Path, files: Path, target: Path) -> None:
    """Say where to look next."""
    lines = [
        ("the files", _here(files)),
        ("the Delta table", _here(target)),
        ("the pipeline", "dags/pipelines/flights.yaml; its DAG is dags/flights.py"),
        ("in a shell", f". {_here(environment)}"),
        ("  where it stands", "airflow ckpt status flights"),
        ("  without a DAG", "airflow ckpt run dags/pipelines/flights.yaml"),
        ("  Airflow's pages", "airflow standalone, then http://localhost:8080 (the one that ran is stopped)"),
    ]
    console.print("Where to look next", style="bold")
    for what, where in lines:
        console.print(Text(f"  {what:<18} {where}"), soft_wrap=True)


def _here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
