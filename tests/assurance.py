"""Record the last complete run of each proof, storm and benchmark: its figures, its commit and its date.

A target that was run completely writes ``docs/assurance/NAME.json``. docs/assurance.rst shows these files beside what
each target proves, and says how often the package was changed since then.
"""

from __future__ import annotations

import json
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/assurance"
JUDGED = ("airflow_provider_ckpt", "tests", "pyproject.toml", "requirements.lock")
"""Paths that decide the outcome; uncommitted changes below them are noted with the commit."""

TARGETS = (
    "formal",
    "ledger-storm",
    "chaos",
    "soak",
    "bench-pg",
    "bench-mysql",
    "bench-kafka",
    "bench-files",
    "bench-store",
    "bench-isolation",
    "bench-airflow",
    "bench-peers",
    "bench-ledger",
    "bench-many",
    "bench-page",
    "bench-database",
)
"""The make targets that leave a record."""


def is_whole(parser: ArgumentParser, options: Namespace) -> bool:
    """Return whether the options are the defaults, so that the figures count; any seed is allowed."""
    defaults = vars(parser.parse_args([]))
    return all(value == defaults[name] for name, value in vars(options).items() if name != "seed")


def record(target: str, figures: Mapping[str, object]) -> None:
    """Write the figures of a whole run, with the commit that was checked out.

    :param target: one of :data:`TARGETS`
    :param figures: names and JSON-ready values; ``failures`` holds what did not hold, if anything
    :raises ValueError: if there is no such target
    """
    if target not in TARGETS:
        raise ValueError(f"{target} is none of {', '.join(TARGETS)}")
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    document = {
        "commit": commit,
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", *JUDGED)),
        "day": datetime.now(UTC).date().isoformat(),
        "figures": dict(figures),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{target}.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def table(folder: Path = FOLDER) -> str:
    """Return the records as a table in reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 14 56 16 14",
        "",
        *_row("target", "last figures", "commit", "commits to the package since"),
    ]
    for target in TARGETS:
        path = folder / f"{target}.json"
        if not path.is_file():
            lines += _row(f"``make {target}``", "never run whole", "", "")
            continue
        found = json.loads(path.read_text("utf-8"))
        changed = " with uncommitted changes" if found["uncommitted_changes"] else ""
        since = _git("rev-list", "--count", f"{found['commit']}..HEAD", "--", "airflow_provider_ckpt") or "unknown"
        lines += _row(
            f"``make {target}``", _told(found["figures"]), f"{found['commit']}{changed}, {found['day']}", since
        )
    return "\n".join(lines) + "\n"


COMPARED = {
    "first": "first load, {rows:,} rows",
    "new": "{new_rows:,} new rows",
    "nothing": "nothing new",
    "tables_first": "{tables} tables, first load of {rows_of_a_small_table:,} rows each",
    "tables_new": "{tables} tables, {new_rows:,} new rows in all",
    "tables_nothing": "{tables} tables, nothing new",
    "lines": "{lines:,} JSON lines to Parquet",
}
"""Loads that ``make bench-peers`` measures, by the names of their figures."""

WAYS = {
    "task": "a task of Airflow",
    "cli_warm": "``airflow ckpt run``",
    "cold": "the same, cold",
    "sling": "Sling, by key",
    "sling_append": "Sling, appending",
    "dlt": "dlt",
}
"""The ways that ``make bench-peers`` compares, by the names of its figures."""


def comparison(folder: Path = FOLDER) -> str:
    """Return the figures of ``make bench-peers`` as a table in reStructuredText."""
    path = folder / "bench-peers.json"
    if not path.is_file():
        return "``make bench-peers`` was never run whole.\n"
    found = json.loads(path.read_text("utf-8"))
    figures = found["figures"]
    lines = [
        f"Seconds, medians of {figures['rounds']} rounds, at {found['commit']}, {found['day']}:",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *_row("work", *WAYS.values()),
    ]
    for name, words in COMPARED.items():
        seconds = figures["seconds"][name]
        lines += _row(words.format(**figures), *(f"{seconds[way]:.2f}" if way in seconds else "" for way in WAYS))
    return "\n".join(lines) + "\n"


def _row(first: str, *others: str) -> list[str]:
    return [f"   * - {first}", *(f"     - {cell}" for cell in others)]


def _told(figures: Mapping[str, object], prefix: str = "") -> str:
    parts = []
    for name, value in figures.items():
        words = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            parts.append(_told(value, f"{words} "))
        elif isinstance(value, list):
            parts.append(f"{words}: {'; '.join(map(str, value)) or 'none'}")
        else:
            parts.append(f"{words}: {value:,}" if isinstance(value, int) else f"{words}: {value}")
    return ", ".join(filter(None, parts))


def _git(*arguments: str) -> str | None:
    """Return what git says, None where there is no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
