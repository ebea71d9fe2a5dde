"""The standing driver is started once, found by later runs, lost without harm, and used by its own user only."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines.driver_key import driver_key
from airflow_provider_ckpt.engines.factory import make_engine
from airflow_provider_ckpt.engines.run_directory import RunDirectory
from airflow_provider_ckpt.spark.driver.session_conf import static_part
from tests.integration.engines.engine_setup import EngineSetup, Kind, await_rows, delivered, expected, slow_orders
from tests.services.database_server import PASSWORD
from tests.services.other_user import give, offered, opened, reach
from tests.services.replication import orders_pipeline
from tests.services.tables import add_rows, execute, make_source, make_target, scalar
from tests.services.warm_spark import WarmSpark, living

pytestmark = pytest.mark.parametrize("engine_setup", [Kind.WARM], indirect=True)


def copy(engine_setup: EngineSetup, name: str, rows: int = 100, **parts: Any) -> dict[str, Any]:
    """A pipeline with a source and a target of its own."""
    make_source(engine_setup.dsn, f"{name}_source", rows)
    make_target(engine_setup.dsn, f"{name}_target")
    return orders_pipeline(name, source=f"{name}_source", target=f"{name}_target") | parts


def count(engine_setup: EngineSetup, name: str) -> int:
    """Rows in the target of :func:`copy`."""
    found: int = scalar(engine_setup.dsn, f"SELECT count(*) FROM {name}_target")
    return found


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)  # each look at the database takes a connection


def sleepy(engine_setup: EngineSetup, name: str, rows: int, seconds: float) -> dict[str, Any]:
    """A pipeline whose target takes its time for every batch of 100."""
    document = copy(engine_setup, name, rows) | {"commit_strategy": {"commit_interval": 100}}
    slow = f"BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END"
    execute(
        engine_setup.dsn,
        f"CREATE FUNCTION {name}_slow() RETURNS trigger LANGUAGE plpgsql AS $$ {slow} $$",
        f"CREATE TRIGGER slow AFTER INSERT ON {name}_target FOR EACH STATEMENT EXECUTE FUNCTION {name}_slow()",
    )
    return document


def test_runs_that_begin_together_start_one_spark_and_later_ones_find_it(
    engine_setup: EngineSetup, warm: WarmSpark
) -> None:
    warm.stop()
    documents = [copy(engine_setup, name) for name in ("a", "b", "c")]

    with ThreadPoolExecutor(3) as pool:
        summaries = list(pool.map(engine_setup.run, documents))
    pid = warm.state()["pid"]
    add_rows(engine_setup.dsn, "a_source", 101, 201)
    engine_setup.run(documents[0])

    assert [summary.records.delivered for summary in summaries] == [100, 100, 100]
    until(lambda: warm.state()["runs"] == [])
    told = warm.state()
    assert (told["pid"], told["runs_served"], count(engine_setup, "a")) == (pid, 4, 200)
    assert told["memory_bytes"] > 100 << 20


def test_pipelines_that_pass_records_unchanged_share_a_session_and_others_do_not(
    engine_setup: EngineSetup, warm: WarmSpark
) -> None:
    warm.stop()
    execute(
        engine_setup.dsn,
        "CREATE TABLE words_source (id bigint PRIMARY KEY, word varchar(9))",
        "CREATE TABLE words_target (LIKE words_source)",
        "INSERT INTO words_source SELECT i, 'word ' || i FROM generate_series(1, 100) AS i",
    )
    documents = [
        copy(engine_setup, "plain"),
        orders_pipeline("words", source="words_source", target="words_target"),
        copy(engine_setup, "half", transform={"where": "id > 50"}),
        copy(engine_setup, "third", transform={"where": "id > 66"}),
        copy(engine_setup, "other_conf", run={"conf": {"spark.sql.shuffle.partitions": "3"}}),
    ]

    found = []
    for document in documents:
        delivered_records = engine_setup.run(document).records.delivered
        until(lambda: warm.state()["runs"] == [])
        found.append((delivered_records, warm.state()["sessions"]))

    assert found == [(100, 1), (100, 1), (50, 2), (34, 3), (100, 4)]
    differences = "SELECT count(*) FROM (TABLE words_source EXCEPT TABLE words_target) AS found"
    assert scalar(engine_setup.dsn, differences) == 0


def test_nothing_of_a_run_shows_in_a_command_line_and_no_port_is_open_to_others(
    engine_setup: EngineSetup, warm: WarmSpark
) -> None:
    document = sleepy(engine_setup, "secret", 600, 0.3)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, document)
        until(lambda: count(engine_setup, "secret") > 0)
        processes = warm.processes()
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes]
        assert len(processes) > 3
        assert not [line for line in lines if PASSWORD.encode() in line or b"secret" in line]
        assert {address for pid in processes for address in listening(pid)} <= {"127.0.0.1"}
        assert warm.directory.stat().st_mode & 0o777 == 0o700
        assert all(told["pipeline"] == "secret" for told in warm.state()["runs"])
        running.result(120)


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with_socket = str(entry.readlink()) if entry.is_symlink() else ""
        inodes.add(with_socket.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                # IPv4, or an IPv4 address in IPv6 as Java writes it: the last four bytes, in this machine's order.
                found.add(".".join(str(byte) for byte in reversed(raw[-4:])))
    return found


def test_another_user_reaches_nothing_of_a_driver_and_gets_no_answer(
    engine_setup: EngineSetup, warm: WarmSpark
) -> None:
    engine_setup.run(copy(engine_setup, "mine"))
    (path,) = warm.directory.glob("*/socket")
    run = RunDirectory()
    (run.path / "job.json").write_text(PASSWORD)
    above = [each for place in (warm.directory, run.path) for each in place.parents]

    with opened(*above):
        for place in (warm.directory, path.parent, path, path.parent / "log", run.path, run.path / "job.json"):
            assert reach(place) == "PermissionError", place
        with opened(warm.directory, path.parent, path, mode=0o777):
            assert "log" in reach(path.parent)
            assert reach(path) in (0, "ConnectionResetError", "BrokenPipeError")  # the kernel told who it is
    run.remove()

    assert len(warm.states()) == 1


def test_a_killed_run_ends_alone(engine_setup: EngineSetup, warm: WarmSpark) -> None:
    victim, other = sleepy(engine_setup, "victim", 1_500, 0.5), sleepy(engine_setup, "other", 3_000, 0.4)
    engine = make_engine(engine_setup.pipeline(victim))

    with ThreadPoolExecutor(2) as pool:
        killed = pool.submit(engine_setup.run, victim, engine=engine)
        goes_on = pool.submit(engine_setup.run, other)
        until(lambda: count(engine_setup, "victim") > 0 and count(engine_setup, "other") > 0)
        pid = warm.state()["pid"]
        engine.kill()
        with pytest.raises(EngineError, match="Spark was stopped"):
            killed.result(30)
        until(lambda: [told["pipeline"] for told in warm.state()["runs"]] == ["other"], 10)
        summary = goes_on.result(120)

    assert (summary.records.delivered, summary.errors) == (3_000, {})
    assert warm.state()["pid"] == pid
    assert count(engine_setup, "victim") < 1_500
    engine_setup.run(victim)
    assert count(engine_setup, "victim") == 1_500


def test_a_worker_that_dies_costs_others_nothing(engine_setup: EngineSetup, warm: WarmSpark) -> None:
    good = sleepy(engine_setup, "good", 1_500, 0.2)
    bad = copy(engine_setup, "bad") | {
        "transform": {"select": {"id": "id"}, "python": "task", "returns": "id bigint"},
        "retry": {"rounds": 1, "max_attempts": 1},
    }
    execute(engine_setup.dsn, "DROP TABLE bad_target", "CREATE TABLE bad_target (id bigint)")

    def deadly(rows: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return rows

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, good)
        until(lambda: count(engine_setup, "good") > 0)
        lost = engine_setup.run(bad, function=deadly)
        summary = running.result(120)

    assert (lost.batches_by_state, count(engine_setup, "bad")) == ({"held": 1}, 0)
    assert (summary.records.delivered, summary.errors) == (1_500, {})


def test_it_is_lost_in_a_run_which_goes_on_cold_once_and_what_it_left_is_in_nobody_s_way(
    engine_setup: EngineSetup, warm: WarmSpark, caplog: pytest.LogCaptureFixture
) -> None:
    document = slow_orders(engine_setup, 2_000)

    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        running = pool.submit(engine_setup.run, document)
        await_rows(engine_setup)
        (home,) = [path.parent for path in warm.directory.glob("*/socket")]
        warm.kill()
        summary = running.result(240)

    assert delivered(engine_setup) == expected(engine_setup)
    assert summary.route[-1] == "done"
    assert caplog.text.count("the standing Spark driver was lost, so this run continues with a Spark of its own") == 1
    assert warm.states() == []
    assert engine_setup.ledger.audit("orders")["ok"]

    assert (home / "socket").exists()
    add_rows(engine_setup.dsn, "orders", 2_001, 2_101)
    engine_setup.run(document)

    assert delivered(engine_setup) == expected(engine_setup)
    assert not home.exists()
    assert len(warm.states()) == 1


def write_function(folder: Path, factor: int) -> None:
    """A module with a function for ``transform.python``, and another module that it uses."""
    (folder / "their_factor.py").write_text(f"FACTOR = {factor}\n# {'x' * factor}\n")
    (folder / "their_functions.py").write_text(
        "import pyarrow as pa\nfrom their_factor import FACTOR\n\n\n"
        "def multiply(rows):\n"
        "    return pa.table({'id': pa.array([n * FACTOR for n in rows.column('id').to_pylist()], pa.int64())})\n"
    )


def test_a_function_that_was_changed_takes_effect_in_the_next_run(
    engine_setup: EngineSetup, warm: WarmSpark, tmp_path: Path
) -> None:
    make_source(engine_setup.dsn, "numbers", 0)
    execute(engine_setup.dsn, "CREATE TABLE multiplied (id bigint)")
    document = orders_pipeline("multiply", source="numbers", target="multiplied") | {
        "transform": {"select": {"id": "id"}, "python": "their_functions:multiply", "returns": "id bigint"},
    }
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, factor in ((first, 2), (second, 7)):
        folder.mkdir()
        write_function(folder, factor)

    def run(folder: Path, at: int) -> list[int]:
        add_rows(engine_setup.dsn, "numbers", at, at + 1)
        before = set(execute(engine_setup.dsn, "SELECT id FROM multiplied"))
        with warm.found({"PYTHONPATH": str(folder)}):
            engine_setup.run(document)
        return [row[0] for row in set(execute(engine_setup.dsn, "SELECT id FROM multiplied")) - before]

    assert set(run(first, 1)) == {2}
    write_function(first, 3)
    assert run(first, 1009) == [3027]
    assert run(second, 1013) == [7091]
    write_function(first, 5)
    assert run(first, 1019) == [5095]


def test_a_driver_that_another_user_offers_is_not_used_and_the_run_says_why(
    engine_setup: EngineSetup,
    warm: WarmSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    document = copy(engine_setup, "cold")
    key = driver_key(static_part(engine_setup.pipeline(document).spark_properties))
    warm.stop()
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / f"ckpt-spark-{os.geteuid()}"
    (theirs / f"{key}-1").mkdir(parents=True)
    give(theirs)

    with (
        offered(theirs / f"{key}-1" / "socket") as requests,
        warm.found({"XDG_RUNTIME_DIR": ""}),
        caplog.at_level(logging.WARNING),
    ):
        summary = engine_setup.run(document)

    assert summary.records.delivered == 100
    assert requests == []
    assert caplog.text.count("no standing Spark driver can be used, so this run starts a Spark of its own") == 1
    assert f"{theirs} is not a directory of this user with mode 0700" in caplog.text


def test_other_static_properties_need_another_spark_which_replaces_the_one_that_waits_and_ends_when_nobody_needs_it(
    engine_setup: EngineSetup, warm: WarmSpark
) -> None:
    def run(name: str, conf: Mapping[str, str]) -> int:
        engine_setup.run(copy(engine_setup, name) | {"run": {"conf": dict(conf)}})
        found: int = warm.state()["pid"]
        return found

    plain = run("plain", {})
    assert run("of_session", {"spark.sql.execution.arrow.maxRecordsPerBatch": "5000"}) == plain
    with warm.found({"AIRFLOW__CKPT__WARM_SPARK_SERVERS": "1", "AIRFLOW__CKPT__WARM_SPARK_IDLE": "2"}):
        assert run("one_core", {"spark.master": "local[1]"}) != plain
    processes = warm.processes()

    assert [count(engine_setup, name) for name in ("plain", "of_session", "one_core")] == [100] * 3
    assert len(processes) > 2
    assert living(processes) == []
    assert warm.states() == []
