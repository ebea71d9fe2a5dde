"""``airflow ckpt validate --conformance`` runs the conformance suite beside the target, and reports what fails."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from airflow_provider_ckpt.cli import conformance
from airflow_provider_ckpt.cli.conformance import find_nonconformities
from airflow_provider_ckpt.config.load import load


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database file with a target, and a connection ``shop`` that leads to it."""
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("CREATE TABLE target (id bigint)")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    return path


def _declare(folder: Path, **sink: str) -> str:
    file = folder / "orders.yaml"
    declared = {
        "name": "orders",
        "source": {"type": "files", "path": "/nowhere"},
        "transform": {"decode": "json", "schema": "id bigint"},
        "sink": sink,
    }
    file.write_text(yaml.safe_dump(declared))
    return str(file)


def _tables(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as opened:
        names = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: opened.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}


def test_a_database_that_conforms_keeps_nothing_but_empty_bookkeeping(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "_PROGRESS_SECONDS", 0.0)
    file = _declare(tmp_path, type="sql", connection="shop", table="target")

    assert find_nonconformities(file, load(file)) == []
    left = _tables(database)
    assert {name for name in left if not name.startswith("ckpt_sink_")} == {"target"}
    assert not any(left.values())
    shown = [list(map(int, re.findall(r"\d+", line))) for line in capsys.readouterr().err.splitlines()]
    assert shown[0][0] == 0
    assert shown[-1][0] == shown[-1][1] == shown[0][1]


def test_what_does_not_hold_is_named(database: Path, tmp_path: Path) -> None:
    file = _declare(tmp_path, type="sql", connection="shop", table="target")
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE ckpt_sink_receipt (ledger text)")

    problems = find_nonconformities(file, load(file))

    assert problems
    assert all(problem.startswith("the sink does not conform: Test") for problem in problems)


def test_a_sink_without_such_a_suite_is_a_problem(tmp_path: Path) -> None:
    file = _declare(tmp_path, type="files", path=str(tmp_path / "out"), format="jsonl")

    assert find_nonconformities(file, load(file)) == [
        "--conformance: there is no suite for a sink of type files that runs beside its target"
    ]
