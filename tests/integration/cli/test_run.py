"""``airflow ckpt`` and ``airflow db`` as a person calls them: real processes, real ledgers, no Airflow running.

The processes are forks of one that has imported Airflow, except where the import itself is looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.services.airflow import DATABASE_MANAGER
from tests.services.warm_airflow import airflow_in

_PIPELINE = """
name: people
source: {{type: files, path: {data}/in}}
transform: {{decode: json, schema: "id int, name string", where: id >= 2}}
sink: {{type: delta, path: {data}/out}}
"""


class Shell:
    """A machine of its own: an AIRFLOW_HOME, a folder for data, and what was set in the environment.

    :param folder: for data
    :param home: AIRFLOW_HOME
    :param program: runs ``airflow``
    """

    def __init__(self, folder: Path, home: Path, program: Sequence[str]) -> None:
        self.data = folder
        self.home = home
        self.program = program
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.env = {**inherited, "AIRFLOW_HOME": str(self.home), "NO_COLOR": "1"}
        self.env["AIRFLOW__CKPT__WARM_SPARK"] = "False"
        self.env |= {f"AIRFLOW__{name}": value for name, value in DATABASE_MANAGER.items()}

    def airflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.program, *arguments],
            env=self.env,
            cwd=self.data,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.airflow("ckpt", *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *arguments: str) -> str:
        done = self.airflow("ckpt", *arguments, "-o", "json")
        assert done.returncode == 1
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        return last


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the command ``airflow``, and ``home``, the AIRFLOW_HOME with which Airflow was imported."""
    here = tmp_path_factory.mktemp("airflow")
    with airflow_in(here, {**os.environ, "AIRFLOW_HOME": str(here / "home")}):
        yield here


@pytest.fixture
def shell(tmp_path: Path, imported: Path) -> Shell:
    """Nothing is there yet."""
    home = imported / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    return Shell(tmp_path, home, [str(imported / "airflow")])


def test_a_run_needs_the_ledgers_tables_and_nothing_else(shell: Shell) -> None:
    (shell.data / "in").mkdir()
    (shell.data / "in" / "a.jsonl").write_text('{"id": 1, "name": "x"}\n{"id": 2, "name": "y"}\n{"id": \n')
    (shell.data / "p.yaml").write_text(_PIPELINE.format(data=shell.data))
    assert "airflow ckpt db migrate" in shell.refused("run", "p.yaml")

    assert shell.json("db", "migrate")["before"] is None
    first = shell.json("run", "p.yaml")
    second = shell.json("run", "p.yaml")

    assert first["records"] == {"read": 3, "delivered": 1, "filtered": 1, "dead_lettered": 1, "retried": 0}
    assert first["route"] == ["dead_letters", "done"]
    assert first["target_rows"] == 1
    assert second["records"]["read"] == 0
    assert second["route"] == ["done"]
    assert (first["spark_started"], second["spark_started"]) == (True, False)
    status = shell.json("status", "people")
    assert status["lease"]["epoch"] == second["epoch"]
    assert status["dead_letters"] == {"MessageDeserialization": 1}


def test_what_is_wrong_is_one_line_that_says_what_to_do(shell: Shell) -> None:
    shell.json("db", "migrate")
    (shell.data / "typo.yaml").write_text("name: p\nsorce: {}\n")
    (shell.data / "nowhere.yaml").write_text(_PIPELINE.format(data=shell.data))

    assert "typo.yaml:2: sorce: unknown key; did you mean source?" in shell.refused("run", "typo.yaml")
    assert f"there is no directory {shell.data}/in" in shell.refused("run", "nowhere.yaml")
    assert "the ledger knows no pipeline 'people'" in shell.refused("status", "people")


def test_a_spark_connection_that_only_the_metadata_database_holds_is_found(shell: Shell) -> None:
    (shell.data / "in").mkdir()
    (shell.data / "in" / "a.jsonl").write_text('{"id": 1, "name": "x"}\n{"id": 2, "name": "y"}\n')
    for name in ("narrow", "nowhere"):
        run = f"run: {{connection: {name}}}\n"
        (shell.data / f"{name}.yaml").write_text(_PIPELINE.format(data=shell.data) + run)
    assert shell.airflow("db", "migrate").returncode == 0
    added = shell.airflow("connections", "add", "narrow", "--conn-type", "spark", "--conn-host", "local[1]")
    assert added.returncode == 0, added.stderr

    assert "the connection 'nowhere' is not defined" in shell.refused("run", "nowhere.yaml")
    summary = shell.json("run", "narrow.yaml")

    assert summary["spark_started"] is True
    assert summary["records"]["delivered"] == 1


def test_check_says_whether_the_ledger_is_at_the_right_revision(shell: Shell) -> None:
    before = shell.airflow("ckpt", "db", "check", "-o", "json")
    shell.json("db", "migrate")
    after = shell.json("db", "check")

    assert before.returncode == 1
    assert json.loads(before.stdout)["revision"] is None
    assert after["revision"] == after["head"]


def test_airflows_own_migration_makes_the_ledger_and_a_reset_leaves_it_alone(shell: Shell) -> None:
    migrated = shell.airflow("db", "migrate")
    assert migrated.returncode == 0, migrated.stderr
    ledger = (shell.home / "ckpt.db").read_bytes()
    inode = (shell.home / "ckpt.db").stat().st_ino

    reset = shell.airflow("db", "reset", "-y")

    assert reset.returncode == 0, reset.stderr
    assert (shell.home / "ckpt.db").stat().st_ino == inode
    assert (shell.home / "ckpt.db").read_bytes() == ledger
    checked = shell.json("db", "check")
    assert checked["revision"] == checked["head"]


def test_a_ledger_in_postgres_is_found_by_its_connection(shell: Shell, postgres_database: str) -> None:
    shell.env["AIRFLOW_CONN_CKPT_DEFAULT"] = postgres_database.replace("postgresql://", "ckpt://")

    made = shell.airflow("ckpt", "db", "migrate", "-o", "json")

    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["from"] == "connection ckpt_default"
    assert "ckpt-test" not in made.stdout + made.stderr
    assert not (shell.home / "ckpt.db").exists()
    with psycopg2.connect(postgres_database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ckpt_ledger")
        assert cursor.fetchone() == (1,)


def test_the_provider_is_taken_up_without_a_warning(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path / "home", [sys.executable, "-m", "airflow"])

    listed = shell.airflow("providers", "list", "-o", "json")
    hooks = shell.airflow("providers", "hooks", "-o", "json")

    assert any(item["package_name"] == "airflow-provider-ckpt" for item in json.loads(listed.stdout))
    assert any(item["connection_type"] == "ckpt" for item in json.loads(hooks.stdout))
    assert "ckpt" not in listed.stderr + hooks.stderr
