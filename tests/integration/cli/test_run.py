"""``airflow ckpt`` and ``airflow db`` from a shell: real processes and ledgers, without a running Airflow.

The processes are forks of a process that has imported Airflow, except in tests of the import itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.integration.connectors.sql.sql_support import MariaDb, Sqlite
from tests.services.airflow import DATABASE_MANAGER
from tests.services.mariadb import MariaDbServer
from tests.services.tables import execute
from tests.services.warm_airflow import WarmAirflow

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


@pytest.fixture
def shell(tmp_path: Path, warm_airflow: WarmAirflow) -> Shell:
    """Nothing is there yet."""
    return Shell(tmp_path, warm_airflow.home, warm_airflow.command)


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


_SQL_PIPELINES = """
name: {name}
source: {{type: {source}, connection: {from_}, table: sales, cursor: id, close_wait: 5s}}
sink: {{type: {sink}, connection: {to}, table: sales}}
delivery: exactly_once
run:
  conf: {{spark.eventLog.enabled: true, spark.eventLog.dir: "file://{data}/events"}}
"""


def test_databases_are_replicated_and_no_secret_is_left_anywhere(
    shell: Shell, mariadb_server: MariaDbServer, postgres_database: str
) -> None:
    """PostgreSQL to MariaDB, then a SQLite file to PostgreSQL, with a bad row each."""
    secret = "s3cret-0f-Mar1aDB"
    shop, file = MariaDb(mariadb_server), Sqlite(shell.data)
    shop.execute(
        "CREATE TABLE sales (id int CHECK (id <> 3), what varchar(9))",
        f"CREATE OR REPLACE USER clerk@'127.0.0.1' IDENTIFIED BY '{secret}'",
        f"GRANT ALL ON {shop.name}.* TO clerk@'127.0.0.1'",
    )
    execute(
        postgres_database,
        "CREATE TABLE sales (id int PRIMARY KEY CHECK (id <> 7), what text)",
        "INSERT INTO sales SELECT i, 'row ' || i FROM generate_series(1, 5) AS i",
    )
    file.execute(
        "CREATE TABLE sales (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT)",
        "INSERT INTO sales VALUES (6, 'six'), (7, 'seven'), (8, 'eight')",
    )
    connections = {"shop": replace(shop.connection, login="clerk", password=secret), "file": file.connection}
    for name, known in connections.items():
        fields = {key: getattr(known, key) for key in ("host", "port", "login", "password", "schema")}
        shell.env[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps({"conn_type": known.type, **fields})
    shell.env["AIRFLOW_CONN_WAREHOUSE"] = postgres_database.replace("postgresql://", "postgres://")
    (shell.data / "events").mkdir()
    for name, source, from_, sink, to in (
        ("out", "postgres", "warehouse", "sql", "shop"),
        ("back", "sql", "file", "postgres", "warehouse"),
    ):
        text = _SQL_PIPELINES.format(name=name, source=source, from_=from_, sink=sink, to=to, data=shell.data)
        (shell.data / f"{name}.yaml").write_text(text)
    shell.json("db", "migrate")
    said: list[str] = []
    with watching_command_lines(secret) as seen:
        for name in ("out", "back"):
            done = shell.airflow("ckpt", "run", f"{name}.yaml", "-o", "json")
            assert done.returncode == 0, done.stderr
            said += [done.stdout, done.stderr]

    counts = [json.loads(text)["records"] for text in said[::2]]
    assert [(found["read"], found["delivered"], found["dead_lettered"]) for found in counts] == [(5, 4, 1), (3, 2, 1)]
    assert shop.execute("SELECT id, what FROM sales ORDER BY id") == [(n, f"row {n}") for n in (1, 2, 4, 5)]
    assert execute(postgres_database, "SELECT id FROM sales ORDER BY id") == [(n,) for n in (1, 2, 3, 4, 5, 6, 8)]
    left = [path for folder in (shell.data, shell.home) for path in folder.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in left)
    assert [path for path in left if secret.encode() in path.read_bytes()] == []
    assert secret not in "".join(said)
    assert secret not in str(shop.execute("SELECT * FROM ckpt_sink_dead_letter"))
    assert seen == []


@contextmanager
def watching_command_lines(secret: str) -> Iterator[list[str]]:
    """Collect the command lines of this machine in which a secret is seen meanwhile."""
    seen: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    text = line.read_bytes().decode(errors="replace")
                    seen.extend([text] if secret in text else [])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
