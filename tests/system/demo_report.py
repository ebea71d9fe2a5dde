"""What the demo tells its reader: a table of runs, a dead letter to look at, and where to look next."""

from __future__ import annotations

import json
import shlex
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
    """The runs as a table.

    :param runs: what each run found new → its element of ``summary.json``
    """
    table = Table(box=SIMPLE, pad_edge=False, header_style="bold")
    for header in (
        "run",
        "new",
        "read",
        "delivered",
        "filtered",
        "dead-lettered",
        "batches",
        "route",
        "Spark",
        "seconds",
    ):
        numeric = header not in ("new", "route", "Spark")
        table.add_column(header, justify="right" if numeric else "left", no_wrap=True)
    for number, (new, run) in enumerate(runs.items(), start=1):
        table.add_row(
            str(number),
            new,
            *(f"{run['records'][name]:,}" for name in _COUNTS),
            str(run["batches"]),
            ", ".join(run["route"]),
            "started" if run["spark_started"] else "not started",
            f"{run['seconds']:.1f}",
        )
    return table


def read_letters(directory: Path) -> list[dict[str, Any]]:
    """Every dead letter under a directory, in source order."""
    letters = [json.loads(line) for path in directory.rglob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(letters, key=lambda letter: letter["position"])


def show_letters(console: Console, directory: Path, letters: Sequence[Mapping[str, Any]]) -> None:
    """Say how many dead letters of which kind are where, and show the first of each kind."""
    kinds = Counter((letter["error_type"], letter["message"]) for letter in letters)
    console.print(f"{len(letters)} dead letters under {directory}", style="bold", soft_wrap=True)
    for (kind, message), count in kinds.most_common():
        first = next(letter for letter in letters if (letter["error_type"], letter["message"]) == (kind, message))
        headers = first["headers"]
        where = f"{Path(headers['source-file']).name}, byte {headers['source-position']}"
        console.print(f"  {count:>3} {kind}: {message}; the first at {where}", soft_wrap=True, highlight=False)
        value = first["value"] if first["value"] is not None else f"base64 {first['value_base64']}"
        console.print(Text(f"      {_short(value)}", style="dim"), soft_wrap=True)
    console.print()


def write_environment(path: Path, env: Mapping[str, str]) -> None:
    """Write a shell script that makes ``airflow`` in a shell the demo's own."""
    path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items()))


def show_next(console: Console, environment: Path, root: Path, files: Path, target: Path) -> None:
    """Say where to look next."""
    here = Path.cwd()
    short = {
        path: path.relative_to(here) if path.is_relative_to(here) else path for path in (environment, files, target)
    }
    console.print("Where to look next", style="bold")
    console.print(f"  the files       {short[files]}", highlight=False, soft_wrap=True)
    console.print(f"  the Delta table {short[target]}", highlight=False, soft_wrap=True)
    console.print(
        f"  the pipeline    {root.name}/dags/pipelines/flights.yaml, its DAG dags/flights.py", highlight=False
    )
    console.print(f"  in a shell      . {short[environment]}", highlight=False, soft_wrap=True)
    for command, what in (
        ("airflow ckpt status flights", "where the pipeline stands"),
        ("airflow ckpt run dags/pipelines/flights.yaml", "one more run without a DAG; put a file there first"),
        ("airflow standalone", "Airflow's pages again, at http://localhost:8080; this one is stopped"),
    ):
        console.print(f"                    {command:<46} {what}", highlight=False, soft_wrap=True)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
