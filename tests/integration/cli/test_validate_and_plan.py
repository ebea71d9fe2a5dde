"""``airflow ckpt validate`` and ``plan`` report correctly, and change nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.airflow.users import LINE, SIZE, People
from tests.services.database_server import PASSWORD
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, make_source, make_target

ORDERS: dict[str, Any] = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id", "close_wait": "1s"},
    "sink": {"type": "postgres", "connection": "shop", "table": "target"},
    "commit_strategy": {"commit_interval": 100},
}


def content(folder: Path) -> dict[str, object]:
    """All that the ledger holds, and all files below a folder with their bytes."""
    with sqlite3.connect(folder / "ledger.db") as ledger:
        rows = sorted(ledger.iterdump())
    files = {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "ledger.db" not in path.name
    }
    return {"ledger": rows, "files": files, "folders": sorted(str(path) for path in folder.rglob("*") if path.is_dir())}


def tables(dsn: str) -> list[tuple[object, ...]]:
    """Every table of a database with its rows."""
    named = execute(dsn, "SELECT schemaname, relname FROM pg_stat_user_tables ORDER BY 1, 2")
    return [
        (*name, execute(dsn, f"SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM {name[1]} t"))
        for name in named
    ]


@pytest.fixture
def shop(postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> Path:
    """The file of a pipeline over 250 orders that never ran."""
    del ledger
    make_source(postgres_database, "orders", 250)
    make_target(postgres_database, "target")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", postgres_database)
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(ORDERS))
    return file


def test_files_that_hold_are_valid_and_warnings_are_told(ckpt: Ckpt, tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(yaml.safe_dump(ORDERS))
    second.write_text(
        yaml.safe_dump({**ORDERS, "name": "others", "recovery": {"window": "1d"}, "dag": {"deferrable": True}})
    )

    told = ckpt.json("validate", str(first), str(second))

    assert (told["valid"], told["connected"]) == (True, False)
    assert [(item["pipeline"], item["valid"], item["problems"]) for item in told["files"]] == [
        ("orders", True, []),
        ("others", True, []),
    ]
    assert "dag.deferrable has no effect" in told["files"][1]["warnings"][0]
    assert "others" in ckpt.table("validate", str(first), str(second))


def test_each_file_that_does_not_hold_is_told_with_its_lines(ckpt: Ckpt, tmp_path: Path) -> None:
    good, wrong, twin = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "c.yaml"
    good.write_text(yaml.safe_dump(ORDERS))
    wrong.write_text(yaml.safe_dump({**ORDERS, "retrys": 1, "delivery": "always"}))
    twin.write_text(yaml.safe_dump(ORDERS))

    told, line = ckpt.failed("validate", str(good), str(wrong), str(twin), str(tmp_path / "none.yaml"))

    assert [item["valid"] for item in told["files"]] == [True, False, False, False]
    assert len(told["files"][1]["problems"]) == 2
    assert "did you mean retry" in " ".join(told["files"][1]["problems"])
    assert told["files"][2]["problems"] == [f"{good} declares pipeline 'orders' as well; rename one of them"]
    assert "No such file" in told["files"][3]["problems"][0]
    assert line.startswith("error: 3 of 4 files are invalid")


def test_source_and_sink_are_asked_and_nothing_is_changed(
    ckpt: Ckpt, shop: Path, postgres_database: str, tmp_path: Path
) -> None:
    before, rows = content(tmp_path), tables(postgres_database)

    told = ckpt.json("validate", "--connect", str(shop))

    assert (told["valid"], told["connected"]) == (True, True)
    assert (content(tmp_path), tables(postgres_database)) == (before, rows)


def test_what_source_and_sink_have_against_a_pipeline_is_told_without_secrets(
    ckpt: Ckpt, shop: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(postgres_database, "DROP TABLE target")
    shop.write_text(
        yaml.safe_dump({**ORDERS, "source": {**ORDERS["source"], "cursor": "nosuch"}, "run": {"connection": "no"}})
    )

    told, _ = ckpt.failed("validate", "--connect", str(shop))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", f"postgres://me:{PASSWORD}@127.0.0.1:9/nowhere")
    unreachable, _ = ckpt.failed("validate", "--connect", str(shop))

    said = " ".join(told["files"][0]["problems"])
    assert all(word in said for word in ("nosuch", "target", "'no'"))
    assert PASSWORD not in str(told) + str(unreachable)
    assert len(unreachable["files"][0]["problems"]) >= 2


def test_the_first_run_of_a_pipeline_is_foretold_and_nothing_is_changed(
    ckpt: Ckpt, shop: Path, postgres_database: str, tmp_path: Path
) -> None:
    before, rows = content(tmp_path), tables(postgres_database)

    told = ckpt.json("plan", str(shop))

    (partition,) = told["partitions"]
    assert (told["first_run"], told["starts_spark"], told["batches"], told["records"]) == (True, True, 3, 250)
    assert (partition["first_start"], partition["plan_from"], partition["batches"]) == (
        True,
        partition["checkpoint"],
        3,
    )
    assert [item["records"] for item in told["planned"]] == [100, 100, 50]
    assert told["route"] == ["done"]
    assert (content(tmp_path), tables(postgres_database)) == (before, rows)
    assert "plan from" in ckpt.table("plan", str(shop))


def test_work_that_waits_or_is_held_and_new_files_are_foretold(ckpt: Ckpt, people: People, tmp_path: Path) -> None:
    (people.inbox / "b.jsonl").write_text(LINE * 4)
    ckpt.json("hold", "people", f"{people.partition}#4")
    before = content(tmp_path)

    told = ckpt.json("plan", str(people.file))

    assert content(tmp_path) == before
    (partition,) = told["partitions"]
    assert (partition["checkpoint"], partition["in_flight"], partition["held"]) == (6 * SIZE, 1, 1)
    assert (told["new_files"], told["batches"], told["first_run"]) == (1, 2, False)
    assert (partition["plan_from"], partition["plan_to"]) == (10 * SIZE, 14 * SIZE)
    assert told["route"] == ["hold"]
    assert {
        batch.state for batch in people.ledger.partitions("people")[people.partition].partition.blocking.values()
    } == {
        BatchState.IN_FLIGHT,
        BatchState.HELD,
    }


def test_what_keeps_a_run_from_beginning_is_the_error_of_its_plan(
    ckpt: Ckpt, shop: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", postgres_server.new_database())

    assert "orders" in ckpt.refused("plan", str(shop))


def test_a_drained_pipeline_plans_nothing(ckpt: Ckpt, people: People) -> None:
    (people.inbox / "b.jsonl").write_text(LINE * 4)
    ckpt.json("drain", "people")

    told = ckpt.json("plan", str(people.file))

    assert (told["phase"], told["batches"]) == ("draining", 0)


@pytest.mark.parametrize("schedule", ["61 * * * *", "@sometimes", "* * *", "\u0663 * * * *"])
def test_a_schedule_that_airflow_does_not_take_is_told_by_its_key(ckpt: Ckpt, tmp_path: Path, schedule: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({**ORDERS, "dag": {"schedule": schedule}}))

    told, _ = ckpt.failed("validate", str(file))

    assert [item["problems"][0].partition(";")[0] for item in told["files"]] == [
        f"dag.schedule: {schedule!r} is not a schedule"
    ]
