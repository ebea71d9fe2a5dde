"""The documentation page on connectors, followed literally: its connector is installed, passes the suites, and runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.docs.reader import environment
from tests.services.docs import ROOT, blocks_of
from tests.services.terminal import Terminal
from tests.services.warm_airflow import airflow_in

PIP = 'pip install "./ckpt-sqlite[test]"'


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A shell in which what is installed into ``installed`` is importable, with an Airflow of its own."""
    installed, programs = tmp_path / "installed", tmp_path / "programs"
    installed.mkdir()
    programs.mkdir()
    env = {
        **environment(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "airflow" / "dags"),
        "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/ledger.db",
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(installed),
    }
    with airflow_in(programs, env), Terminal(tmp_path, env) as opened:
        yield opened


def test_the_page_on_connectors_as_it_is_written(terminal: Terminal, tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    offline = f"{uv} pip install --offline --no-deps --no-build-isolation --target installed ./ckpt-sqlite"
    blocks = [
        block.replacing({PIP: offline, "/data/lake.db": f"{tmp_path}/lake.db"})
        for block in blocks_of("docs/connectors.rst")
    ]

    for block in blocks:
        if block.caption:
            text = block.included.read_text("utf-8") if block.included else block.text
            (tmp_path / block.caption).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.caption).write_text(text, "utf-8")
        else:
            terminal.follow(block)

    with closing(sqlite3.connect(tmp_path / "lake.db")) as lake:
        assert lake.execute("SELECT count(*) FROM ckpt_receipt").fetchall() == [(1,)]
        assert lake.execute("SELECT position, error FROM ckpt_dead_letter").fetchall()[0][0] == 2
    shown = {block.included.resolve() for block in blocks if block.included}
    assert shown == {path for path in (ROOT / "tests/example_connector").rglob("*") if path.suffix in (".py", ".toml")}
