"""``airflow ckpt run FILE...`` runs several pipelines in one process, and returns a result for each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.command import CkptCommand, write_pipeline
from tests.services.replication import orders_pipeline
from tests.services.tables import execute, make_source, make_target, scalar
from tests.services.warm_airflow import WarmAirflow
from tests.services.warm_spark import WarmSpark

SLOW = """
CREATE FUNCTION {name}_slow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$
"""


@dataclass
class Shop:
    """A database, commands and a warm Spark.

    :param warm: runtime directory of the standing drivers
    """

    folder: Path
    dsn: str
    command: CkptCommand
    warm: WarmSpark

    def table(self, name: str, **parts: Any) -> str:
        """Make a table of 400 rows and an empty target, and return the file of their pipeline."""
        make_source(self.dsn, name, 400)
        make_target(self.dsn, f"{name}_target")
        document = orders_pipeline(name, source=name, target=f"{name}_target") | parts
        return str(write_pipeline(self.folder / f"{name}.yaml", document))

    def slow_down(self, name: str) -> None:
        """Make each batch that is written to a target take 0.3 s."""
        trigger = f"AFTER INSERT ON {name}_target FOR EACH STATEMENT EXECUTE FUNCTION {name}_slow()"
        execute(self.dsn, SLOW.format(name=name), f"CREATE TRIGGER slow {trigger}")

    def count(self, name: str) -> int:
        """Return the number of rows in the target of a table."""
        found: int = scalar(self.dsn, f"SELECT count(*) FROM {name}_target")
        return found

    def run(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Mapping[str, Any]]]:
        """Run pipelines, and return the result of each by the name of its file."""
        done = self.command.run("run", *arguments, "-o", "json")
        return done, {Path(item["file"]).stem: item for item in json.loads(done.stdout)["pipelines"]}


@pytest.fixture
def shop(tmp_path: Path, postgres_database: str, warm_airflow: WarmAirflow, standing_spark: WarmSpark) -> Shop:
    """A shop whose commands find a Spark that stays."""
    command = CkptCommand(warm_airflow.home, {"orders_db": postgres_database}, airflow=warm_airflow.command)
    command.env |= standing_spark.environment
    command.migrate()
    return Shop(tmp_path, postgres_database, command, standing_spark)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)  # each look at the database takes a connection


def test_one_that_fails_stops_no_other_and_the_last_line_names_it(shop: Shop) -> None:
    files = [shop.table(name) for name in ("a", "b", "c")]
    gone, held = shop.table("gone"), shop.table("held", retry={"max_attempts": 1, "rounds": 1, "on_exhausted": "hold"})
    execute(shop.dsn, "DROP TABLE gone", "ALTER TABLE held_target DROP COLUMN id")
    (shop.folder / "typo.yaml").write_text("name: typo\nsorce: {}\n")

    shop.warm.stop()
    done, results = shop.run(*files, gone, held, str(shop.folder / "typo.yaml"))
    until(lambda: not shop.warm.state()["runs"])  # a run is counted when the driver has seen its client go
    driver = shop.warm.state()
    table = shop.command.run("run", *files).stdout

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (f"error: 3 of 6 pipelines failed: gone, held, {shop.folder / 'typo.yaml'}")
    assert [results[name]["state"] for name in ("a", "b", "c")] == ["done"] * 3
    assert [shop.count(name) for name in ("a", "b", "c")] == [400] * 3
    assert results["a"]["summary"]["records"]["delivered"] == 400
    assert "gone" in results["gone"]["error"]
    assert "held" in results["held"]["error"]
    assert "typo.yaml:2: sorce: unknown key" in results["typo"]["error"]
    assert "gone failed: " in done.stderr
    assert driver["runs_served"] >= 3
    assert [line.split()[:2] for line in table.splitlines() if " done " in line] == [
        ["a", "done"],
        ["b", "done"],
        ["c", "done"],
    ]


def test_two_files_of_one_pipeline_are_both_refused_and_another_runs(shop: Shop) -> None:
    first, other = shop.table("orders"), shop.table("people")
    second = shop.folder / "again.yaml"
    second.write_text(Path(first).read_text())

    done, results = shop.run(first, str(second), other)

    assert done.returncode == 1
    assert results["people"]["state"] == "done"
    for name, of in (("orders", second), ("again", first)):
        assert results[name]["state"] == "failed"
        assert f"{of} declares pipeline 'orders' as well" in results[name]["error"]
    assert shop.count("orders") == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_the_next_run_continues(shop: Shop, number: signal.Signals) -> None:
    names = ("a", "b", "c")
    files = [shop.table(name, commit_strategy={"commit_interval": 10}, consumer={"lanes": 1}) for name in names]
    for name in names:
        shop.slow_down(name)

    own = CkptCommand(shop.command.home, {})  # a process of its own, which receives the signal itself
    own.env = shop.command.env
    with (shop.folder / "log").open("wb") as log:
        running = own.start("run", "--at-once", "2", *files, out=subprocess.DEVNULL, log=log)
        try:
            until(lambda: min(shop.count("a"), shop.count("b")) > 0)
            os.kill(running.pid, number)
            status = running.wait(30)
        finally:
            running.kill()
            running.wait()
    leases = [json.loads(shop.command.run("lease", name, "-o", "json").stdout) for name in ("a", "b")]
    left = shop.count("a"), shop.count("b"), shop.count("c")
    execute(shop.dsn, *(f"DROP TRIGGER slow ON {name}_target" for name in names))
    done, _ = shop.run(*files)

    assert status == 128 + number
    assert f"stopped by {number.name}" in (shop.folder / "log").read_text()
    assert [lease["held"] for lease in leases] == [False, False]
    assert left[2] == 0
    assert max(left) < 400
    assert done.returncode == 0, done.stderr
    assert [scalar(shop.dsn, f"SELECT count(DISTINCT id) FROM {name}_target") for name in names] == [400] * 3
    assert [shop.count(name) for name in names] == [400] * 3


def test_without_a_spark_that_stays_they_run_one_after_another(shop: Shop) -> None:
    shop.command.env["AIRFLOW__CKPT__WARM_SPARK"] = "False"
    shop.warm.stop()
    files = [shop.table(name) for name in ("a", "b")]

    done, results = shop.run(*files)

    assert done.returncode == 0, done.stderr
    assert [results[name]["state"] for name in ("a", "b")] == ["done", "done"]
    assert shop.warm.states() == []
    assert done.stderr.index("a, epoch 1") < done.stderr.index("Starting Spark for b")
