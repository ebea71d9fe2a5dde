"""``airflow ckpt database`` from a shell: many tables run in one process, each as a pipeline of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.command import CkptCommand, write_pipeline
from tests.services.tables import execute, scalar
from tests.services.warm_airflow import WarmAirflow
from tests.services.warm_spark import WarmSpark


@dataclass
class Shop:
    """A database with a schema of sources and one of targets, and commands on a warm Spark."""

    file: Path
    dsn: str
    command: CkptCommand

    def sql(self, *statements: str) -> None:
        """Run statements in the database."""
        execute(self.dsn, *statements)

    def table(self, name: str, rows: int = 20, *, target: bool = True) -> None:
        """Make a source, and an empty target unless it is to be missing."""
        self.sql(f"CREATE TABLE shop.{name} (id serial PRIMARY KEY, v int)")
        self.add(name, rows)
        if target:
            self.sql(f"CREATE TABLE copy.{name} (id int, v int)")

    def add(self, name: str, rows: int = 1) -> None:
        """Insert rows."""
        self.sql(f"INSERT INTO shop.{name} (v) SELECT generate_series(1, {rows})")

    def count(self, name: str) -> int:
        """Return the number of rows in a target."""
        found: int = scalar(self.dsn, f"SELECT count(*) FROM copy.{name}")
        return found

    def fences(self) -> dict[str, int]:
        """Return the epoch of each pipeline's fence in the sink."""
        found = execute(self.dsn, "SELECT pipeline, max(epoch) FROM copy.ckpt_sink_fence GROUP BY 1")
        return {row[0]: row[1] for row in found}

    def declare(self, tables: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """Write the declaration, with keys of its section ``database``."""
        document = {
            "name": "shop",
            "database": {"include": ["shop.*"], **settings},
            "defaults": {
                "source": {"type": "postgres", "connection": "orders_db", "cursor": "id", "close_wait": "5s"},
                "sink": {"type": "postgres", "connection": "orders_db", "table": "copy.{table}"},
            },
            "tables": dict(tables or {}),
        }
        write_pipeline(self.file, document)

    def run(self, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Run the declaration, and return the state of each table that ran or cannot."""
        done = self.command.run("database", "run", str(self.file), *options, "-o", "json")
        tables = json.loads(done.stdout)["tables"] if done.stdout else []
        return done, {item["table"].removeprefix("shop."): item for item in tables}

    def failures(self) -> dict[str, tuple[str, str]]:
        """Return error and time of the tables whose last run failed."""
        done = self.command.run("database", "status", str(self.file), "-o", "json")
        tables = json.loads(done.stdout)["tables"]
        return {item["table"]: (item["error"], item["failed_since"]) for item in tables if item["error"]}

    def show(self) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Show the declaration."""
        done = self.command.run("database", "show", str(self.file), "-o", "json")
        return done, json.loads(done.stdout)


@pytest.fixture
def shop(tmp_path: Path, postgres_database: str, warm_airflow: WarmAirflow, standing_spark: WarmSpark) -> Shop:
    """A shop whose commands find a Spark that stays."""
    command = CkptCommand(warm_airflow.home, {"orders_db": postgres_database}, airflow=warm_airflow.command)
    execute(postgres_database, "CREATE SCHEMA shop", "CREATE SCHEMA copy")
    command.env |= standing_spark.environment
    command.migrate()
    found = Shop(tmp_path / "shop.yaml", postgres_database, command)
    found.declare()
    return found


def test_only_tables_with_news_run_and_others_take_no_lease_and_raise_no_fence(shop: Shop) -> None:
    for name in ("a", "b", "empty"):
        shop.table(name, 0 if name == "empty" else 20)

    first, ran = shop.run()
    epochs = shop.fences()
    again, nothing = shop.run()
    shop.add("b", 3)
    third, one = shop.run()

    assert first.returncode == again.returncode == third.returncode == 0, first.stderr + again.stderr
    assert {name: item["state"] for name, item in ran.items()} == {"a": "done", "b": "done", "empty": "done"}
    assert nothing == {}
    assert list(one) == ["b"]
    assert one["b"]["summary"]["records"]["delivered"] == 3
    assert shop.fences() == epochs | {"shop.shop.b": epochs["shop.shop.b"] + 1}
    assert (shop.count("a"), shop.count("b"), shop.count("empty")) == (20, 23, 0)


def test_a_table_that_fails_stops_no_other_and_the_last_line_names_it(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.table(name)
    shop.table("lost", target=False)
    shop.sql("CREATE TABLE shop.odd (code text)")

    done, results = shop.run()
    shop.sql("CREATE TABLE copy.lost (id int, v int)")
    healed, after = shop.run()

    assert done.returncode == healed.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: 2 of 4 tables failed: shop.lost, shop.odd"
    assert {name: item["state"] for name, item in results.items()} == {
        "a": "done",
        "b": "done",
        "lost": "failed",
        "odd": "failed",
    }
    assert "shop.odd has no column id; its columns: code" in results["odd"]["error"]
    assert {name: item["state"] for name, item in after.items()} == {"lost": "done", "odd": "failed"}
    assert [shop.count(name) for name in ("a", "b", "lost")] == [20, 20, 20]


@pytest.mark.parametrize(("policy", "runs"), [("add", ["late"]), ("ignore", []), ("halt", [])])
def test_a_table_that_appears_is_treated_as_the_declaration_says(shop: Shop, policy: str, runs: list[str]) -> None:
    shop.declare(new_tables=policy)
    shop.table("a")
    shop.run()
    shop.table("late")

    done, results = shop.run()

    assert list(results) == runs
    assert shop.count("late") == (20 if runs else 0)
    assert ("new_tables: halt" in done.stderr or "halt: shop.late appeared" in done.stderr) == (policy == "halt")
    assert done.returncode == (1 if policy == "halt" else 0)


@pytest.mark.parametrize("policy", ["keep", "halt"])
def test_a_table_that_is_gone_is_treated_as_the_declaration_says(shop: Shop, policy: str) -> None:
    shop.declare(gone_tables=policy)
    for name in ("a", "b"):
        shop.table(name)
    shop.run()
    shop.sql("DROP TABLE shop.b")
    shop.add("a")

    done, results = shop.run()

    assert "shop.b" in done.stderr
    assert (done.returncode, list(results)) == ((0, ["a"]) if policy == "keep" else (1, []))


def test_a_renamed_table_never_takes_over_the_pipeline_of_another(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.table(name)
    shop.run()
    shop.sql("ALTER TABLE shop.a RENAME TO old", "ALTER TABLE shop.b RENAME TO a")

    done, results = shop.run()

    assert done.returncode == 1
    assert results["a"]["state"] == "failed"
    assert "shop.a" in results["a"]["error"]
    assert (shop.count("a"), shop.count("b")) == (20, 20)


def test_a_first_run_that_ends_early_leaves_no_table_that_counts_as_new(shop: Shop) -> None:
    shop.declare(new_tables="ignore")
    shop.table("a")
    shop.table("lost", target=False)
    shop.run()
    shop.sql("CREATE TABLE copy.lost (id int, v int)")

    _, results = shop.run()

    assert results["lost"]["state"] == "done"


def test_one_table_is_rewound_by_the_name_of_its_pipeline(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.table(name)
    shop.run()

    rewound = shop.command.run("rewind", "shop.shop.a", "--to-position", "11", "--reason", "again")
    done, results = shop.run()

    assert rewound.returncode == done.returncode == 0, rewound.stderr + done.stderr
    assert list(results) == ["a"]
    assert (shop.count("a"), shop.count("b")) == (30, 20)


def test_a_table_whose_planned_batch_failed_has_work_until_it_is_delivered(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.table(name)
    shop.run()
    for name in ("a", "b"):
        shop.add(name, 5)
    shop.sql("ALTER TABLE copy.a DROP v")

    _, first = shop.run()
    again, second = shop.run()
    shop.sql("ALTER TABLE copy.a ADD v int")
    healed, third = shop.run()

    assert {name: item["state"] for name, item in first.items()} == {"a": "failed", "b": "done"}
    assert {name: item["state"] for name, item in second.items()} == {"a": "failed"}
    assert {name: item["state"] for name, item in third.items()} == {"a": "done"}
    assert (again.returncode, healed.returncode) == (1, 0), healed.stderr
    assert (shop.count("a"), shop.count("b")) == (25, 25)


def test_status_shows_why_and_since_when_the_runs_of_a_table_are_refused(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.table(name, 0)
    shop.declare({"shop.a": {"schema": {"new_column": "freeze"}}})
    shop.run()
    before = shop.failures()
    shop.sql("ALTER TABLE shop.a ADD note text", "ALTER TABLE copy.b RENAME TO mislaid")
    shop.add("a")
    shop.add("b")

    _, first = shop.run()
    once = shop.failures()
    shop.sql("ALTER TABLE copy.mislaid RENAME TO b")
    _, second = shop.run()
    twice = shop.failures()
    text = shop.command.run("database", "status", str(shop.file)).stdout
    shop.sql("ALTER TABLE shop.a DROP note", "DELETE FROM shop.a")
    shop.run("--all")

    assert before == {}
    assert once["shop.a"][0] == first["a"]["error"]
    assert "column note (text) is new, and schema.new_column is freeze" in once["shop.a"][0]
    assert once["shop.b"][0] == first["b"]["error"]
    assert "copy.b does not exist" in once["shop.b"][0]
    assert twice == {"shop.a": (second["a"]["error"], once["shop.a"][1])}
    assert "last run failed, since" in text
    assert once["shop.a"][1] in text
    assert shop.failures() == {}


def test_all_runs_the_tables_without_news_too(shop: Shop) -> None:
    shop.table("a")
    shop.run()

    done, results = shop.run("--all")

    assert done.returncode == 0, done.stderr
    assert results["a"]["summary"]["records"]["delivered"] == 0


def test_show_says_which_pattern_matched_what_and_changes_nothing(shop: Shop) -> None:
    for name in ("a", "b_tmp"):
        shop.table(name)
    shop.declare(exclude=["*_tmp"])

    done, shown = shop.show()
    shop.declare(include=["shop.*", "shpo.*"])
    failed, wrong = shop.show()
    checks = [shop.command.run("validate", *options, str(shop.file), "-o", "json") for options in ((), ("--connect",))]
    status = shop.command.run("database", "status", str(shop.file), "-o", "json")

    assert done.returncode == 0, done.stderr
    assert shown["patterns"] == [
        {"pattern": "shop.*", "excludes": False, "tables": ["shop.a", "shop.b_tmp"]},
        {"pattern": "*_tmp", "excludes": True, "tables": ["copy.b_tmp", "shop.b_tmp"]},
    ]
    assert shown["tables"] == [
        {"table": "shop.a", "pipeline": "shop.shop.a", "new_records": 20, "has_work": True, "error": None}
    ]
    assert failed.returncode == 1
    assert "did you mean shop.*?" in wrong["errors"]["shpo.*"]
    unconnected, connected = (json.loads(check.stdout)["files"][0] for check in checks)
    assert (unconnected["pipeline"], unconnected["problems"]) == ("shop", [])
    assert connected["problems"] == [wrong["errors"]["shpo.*"].removeprefix("[Config] ")]
    assert json.loads(status.stdout) == {"database": "shop", "tables": []}
