"""A target that lost rows, but not its bookkeeping, is detected; a target that was only rewritten is accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.postgres import client
from airflow_provider_ckpt.connectors.sink_protocol import SinkWithTargetSnapshot
from airflow_provider_ckpt.testing.sink_harness import Run, content, task
from tests.integration.connectors.postgres.test_sink import TargetHarness
from tests.services.tables import execute, scalar

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "append": ("id bigint, v text DEFAULT 'x'", {}),
    "append with a key": ("id bigint PRIMARY KEY, v text DEFAULT 'x'", {}),
    "upsert": ("id bigint PRIMARY KEY, v text DEFAULT 'x'", {"mode": "upsert", "key": ["id"]}),
}
REWRITES = {
    "VACUUM FULL": ["VACUUM FULL target"],
    "VACUUM FULL after many rows were deleted": ["DELETE FROM target WHERE id > 20", "VACUUM FULL target"],
    "CLUSTER": ["CREATE INDEX by_id ON target (id)", "CLUSTER target USING by_id"],
    "a changed type": ["ALTER TABLE target ALTER id TYPE numeric"],
    "a new column": ["ALTER TABLE target ADD more double precision DEFAULT random()"],
    "a dropped column": ["ALTER TABLE target DROP v", "VACUUM FULL target"],
    "another tablespace or log": ["ALTER TABLE target SET UNLOGGED", "ALTER TABLE target SET LOGGED"],
}
HARMLESS = {
    "nothing": [],
    "rows deleted by a person": ["DELETE FROM target", "VACUUM target"],
    "rows of others": ["INSERT INTO target SELECT i FROM generate_series(500, 900) AS i"],
    "an index": ["CREATE INDEX ON target (v)", "REINDEX TABLE target"],
}


class Made(TargetHarness):
    """A target of its own columns."""

    def __init__(self, dsn: str, *made: str, **sink: Any) -> None:
        self.dsn, self._sink = dsn, sink
        execute(dsn, *made)


def delivered(harness: TargetHarness, *, runs: int = 2) -> None:
    """Some runs of two batches each, so that the newest fence has seen rows."""
    for epoch in range(1, runs + 1):
        with Run(harness, epoch) as run:
            run.take_over()
            for seq in (2 * epoch, 2 * epoch + 1):
                assert run.send(task(seq), content(seq)).error is None


def seen(harness: TargetHarness) -> str | None:
    with Run(harness, 9) as run:
        run.sink.check()
        return run.sink.claims().loss_evidence


@pytest.fixture(params=KINDS)
def harness(request: pytest.FixtureRequest, postgres_database: str) -> TargetHarness:
    columns, sink = KINDS[request.param]
    return Made(postgres_database, f"CREATE TABLE target ({columns})", **sink)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_truncated_target_is_set_back(harness: TargetHarness, runs: int) -> None:
    delivered(harness, runs=runs)
    execute(harness.dsn, "TRUNCATE target")

    assert "target public.target was truncated" in (seen(harness) or "")


def test_a_target_that_others_filled_again_is_set_back(harness: TargetHarness) -> None:
    delivered(harness)
    execute(harness.dsn, "TRUNCATE target", "INSERT INTO target SELECT i FROM generate_series(500, 900) AS i")

    assert "none of 20 rows that were sampled then can be found" in (seen(harness) or "")


LARGE = 100_300


@pytest.mark.parametrize(
    ("many", "kept"),
    [
        *((300, kept) for kept in ("id <= 290", "id <= 150", "id < 300", "id = 1", "id = 300", "id % 3 > 0")),
        *((LARGE, kept) for kept in (f"id <= {LARGE} - 10", "id < 300", "id % 3 > 0")),
    ],
)
def test_a_truncated_target_into_which_an_older_copy_is_put_back_is_set_back(
    harness: TargetHarness, many: int, kept: str
) -> None:
    filled(harness, many)
    execute(
        harness.dsn,
        f"CREATE TABLE k AS SELECT * FROM target WHERE {kept}",
        "TRUNCATE target",
        "INSERT INTO target TABLE k",
    )

    assert re.search(
        r"(none|only \d+) of \d+ rows that were sampled then can be found: it was truncated", seen(harness) or ""
    )


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM target WHERE id <= 290", "VACUUM FULL target"],
        ["DELETE FROM target WHERE id >= 290", "VACUUM FULL target"],
        ["DELETE FROM target WHERE id >= 290", "CREATE INDEX by_id ON target (id)", "CLUSTER target USING by_id"],
        ["DELETE FROM target WHERE id <= 190", "ALTER TABLE target ALTER id TYPE numeric"],
        ["DELETE FROM target WHERE id <= 190", "ALTER TABLE target ADD more float8 DEFAULT random()"],
        ["ALTER TABLE target SET UNLOGGED", "ALTER TABLE target SET LOGGED"],
        ["CREATE TABLE k AS TABLE target", "TRUNCATE target", "INSERT INTO target TABLE k ORDER BY id DESC"],
        ["VACUUM (FREEZE) target", "DELETE FROM target WHERE id > 20", "VACUUM (FULL, FREEZE) target"],
    ],
    ids="; ".join,
)
def test_a_target_from_which_rows_were_deleted_before_it_was_rewritten_is_not(
    harness: TargetHarness, statements: list[str]
) -> None:
    filled(harness, 300)
    execute(harness.dsn, *statements)

    assert seen(harness) is None


def test_rows_that_were_deleted_before_a_rewrite_that_changes_no_column_may_be_lost(harness: TargetHarness) -> None:
    filled(harness, 300)
    execute(harness.dsn, "DELETE FROM target WHERE id <= 190", *REWRITES["another tablespace or log"])

    assert re.search(r"only \d+ of \d+ rows", seen(harness) or "")


def filled(harness: TargetHarness, many: int) -> None:
    """A target with the rows from 0 to ``many``, which the last run looked at as it ended; the newest are the last."""
    with Run(harness, 1) as run:
        run.take_over().send(task(0), content(0))
        execute(harness.dsn, f"INSERT INTO target SELECT i FROM generate_series(10, {many}) AS i")
        look_again(run)


def first_load(harness: TargetHarness, epoch: int = 1) -> None:
    """A run whose fence saw an empty target, to its end."""
    with Run(harness, epoch) as run:
        run.take_over().send(task(2 * epoch), content(2 * epoch))
        look_again(run)


def look_again(run: Run) -> None:
    assert isinstance(run.sink, SinkWithTargetSnapshot)
    run.sink.store_target_snapshot(run.context.epoch)


def test_the_end_of_the_first_load_is_a_snapshot_of_it(harness: TargetHarness) -> None:
    first_load(harness)
    execute(harness.dsn, "VACUUM FULL target")
    assert seen(harness) is None

    execute(harness.dsn, "TRUNCATE target", "INSERT INTO target VALUES (7777)")

    assert "none of 10 rows that were sampled then can be found" in (seen(harness) or "")


def test_what_comes_after_an_accepted_truncation_has_a_snapshot_too(harness: TargetHarness) -> None:
    first_load(harness)
    execute(harness.dsn, "TRUNCATE target")
    first_load(harness, epoch=2)
    assert seen(harness) is None

    execute(harness.dsn, "TRUNCATE target", "INSERT INTO target VALUES (7777)")

    assert "was truncated and filled again" in (seen(harness) or "")


def test_a_run_that_was_fenced_out_leaves_the_snapshot_of_the_newer_one(harness: TargetHarness) -> None:
    with Run(harness, 1) as old, Run(harness, 2) as new:
        old.take_over().send(task(0), content(0))
        new.take_over()
        execute(harness.dsn, "TRUNCATE target", "INSERT INTO target VALUES (7777)")
        kept = scalar(harness.dsn, "SELECT target_snapshot::text FROM ckpt_sink_fence")
        look_again(old)
    assert scalar(harness.dsn, "SELECT target_snapshot::text FROM ckpt_sink_fence") == kept


def test_a_truncation_just_before_the_last_look_is_not_covered_up_by_it(harness: TargetHarness) -> None:
    with Run(harness, 1) as run:
        run.take_over().send(task(0), content(0))
        execute(harness.dsn, "TRUNCATE target")
        look_again(run)

    assert "was truncated" in (seen(harness) or "")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TimeZone", "Asia/Tokyo"),
        ("DateStyle", "SQL, DMY"),
        ("IntervalStyle", "iso_8601"),
        ("bytea_output", "escape"),
        ("extra_float_digits", "-7"),
    ],
)
def test_rows_are_known_again_where_a_pooler_drops_settings_and_the_database_writes_values_otherwise(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    monkeypatch.setattr(client, "_SESSION_SETTINGS", {})
    harness = Made(
        postgres_database,
        "CREATE TABLE target (id bigint, at timestamptz DEFAULT '2026-01-05 23:00Z', day date DEFAULT '2026-01-05',"
        " span interval DEFAULT '1 day 2:03', code bytea DEFAULT '\\x0001', ratio double precision DEFAULT 1/3.0)",
    )
    first_load(harness)
    execute(
        harness.dsn,
        f"ALTER DATABASE {postgres_database.rsplit('/', 1)[1]} SET {setting} = '{value}'",
        "VACUUM FULL target",
    )

    assert seen(harness) is None


def test_it_is_told_until_the_fence_is_raised_again(harness: TargetHarness) -> None:
    delivered(harness)
    execute(harness.dsn, "TRUNCATE target")

    assert seen(harness) == seen(harness) is not None
    with Run(harness, 3) as run:
        run.take_over()
    assert seen(harness) is None


@pytest.mark.parametrize("statements", (REWRITES | HARMLESS).values(), ids=REWRITES | HARMLESS)
def test_a_target_that_keeps_its_rows_is_not(harness: TargetHarness, statements: list[str]) -> None:
    delivered(harness)
    before = scalar(harness.dsn, "SELECT pg_relation_filenode('target')")
    execute(harness.dsn, *statements)

    assert seen(harness) is None
    if statements in REWRITES.values():
        assert scalar(harness.dsn, "SELECT pg_relation_filenode('target')") != before


def test_rows_that_somebody_changes_are_still_known_by_their_key(postgres_database: str) -> None:
    harness = Made(postgres_database, f"CREATE TABLE target ({KINDS['append with a key'][0]})")
    delivered(harness)
    execute(harness.dsn, "UPDATE target SET v = 'done'", "VACUUM FULL target")

    assert seen(harness) is None


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE target"],
        ["DELETE FROM target", "VACUUM FULL target"],
        ["DELETE FROM target", "CREATE INDEX by_id ON target (id)", "CLUSTER target USING by_id"],
        ["TRUNCATE target", "INSERT INTO target SELECT i FROM generate_series(500, 900) AS i"],
    ],
    ids="; ".join,
)
def test_a_target_that_is_emptied_is_set_back_unless_the_pipeline_permits_it(
    harness: TargetHarness, statements: list[str], runs: int
) -> None:
    delivered(harness, runs=runs)
    with Run(harness, runs) as run:
        look_again(run)
    execute(harness.dsn, *statements)

    assert "(if it is emptied on purpose, write sink.may_be_emptied: true)" in (seen(harness) or "")
    harness._sink["may_be_emptied"] = True
    assert seen(harness) is None


def test_what_is_emptied_once_the_permission_is_taken_back_is_told(harness: TargetHarness) -> None:
    harness._sink["may_be_emptied"] = True
    first_load(harness)
    execute(harness.dsn, "TRUNCATE target")
    first_load(harness, epoch=2)
    del harness._sink["may_be_emptied"]
    assert seen(harness) is None

    execute(harness.dsn, "TRUNCATE target")

    assert "was truncated" in (seen(harness) or "")


def test_a_target_that_never_got_a_row_may_be_truncated(harness: TargetHarness) -> None:
    with Run(harness, 1) as run:
        run.take_over()
    execute(harness.dsn, "TRUNCATE target")

    assert seen(harness) is None


def test_without_the_right_to_read_an_empty_target_is_seen_all_the_same(postgres_database: str) -> None:
    database = postgres_database.rsplit("/", 1)[1]
    harness = Made(
        postgres_database,
        "CREATE TABLE target (id bigint)",
        f"CREATE ROLE {database}_blind LOGIN PASSWORD 'b'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {database}_blind",
        f"GRANT INSERT ON target TO {database}_blind",
    )
    owner, harness.dsn = harness.dsn, postgres_database.replace("//ckpt:ckpt-test@", f"//{database}_blind:b@")
    delivered(harness)
    execute(owner, "TRUNCATE target")

    assert "was truncated" in (seen(harness) or "")


def test_bookkeeping_without_a_snapshot_says_nothing(harness: TargetHarness) -> None:
    delivered(harness)
    execute(harness.dsn, "ALTER TABLE ckpt_sink_fence DROP COLUMN target_snapshot", "TRUNCATE target")

    with Run(harness, 3) as run:
        assert run.sink.claims().loss_evidence is None
        run.take_over()
    assert scalar(harness.dsn, "SELECT target_snapshot IS NOT NULL FROM ckpt_sink_fence")
