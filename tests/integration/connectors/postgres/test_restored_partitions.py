"""A partitioned target that lost rows, but not its bookkeeping, is detected; unharmed targets are accepted."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_ckpt.testing.sink_harness import Run, content, task
from tests.integration.connectors.postgres.test_restored_target import Made, look_again, seen
from tests.services.tables import execute, scalar

LOW, HIGH = "FOR VALUES FROM (0) TO (10)", "FOR VALUES FROM (10) TO (1000)"
LAYOUTS = {
    "partitions": (
        "CREATE TABLE target (id bigint, v text DEFAULT 'x') PARTITION BY RANGE (id)",
        f"CREATE TABLE low PARTITION OF target {LOW}",
        f"CREATE TABLE high PARTITION OF target {HIGH}",
    ),
    "partitions by time": (
        "CREATE TABLE target (id bigint, v text DEFAULT 'x', at timestamptz DEFAULT 'epoch') PARTITION BY LIST (at)",
        "CREATE TABLE middle PARTITION OF target FOR VALUES IN ('epoch') PARTITION BY RANGE (id)",
        f"CREATE TABLE low PARTITION OF middle {LOW}",
        f"CREATE TABLE high PARTITION OF middle {HIGH}",
    ),
    "partitions with a key": (
        "CREATE TABLE target (id bigint PRIMARY KEY, v text DEFAULT 'x') PARTITION BY RANGE (id)",
        f"CREATE TABLE low PARTITION OF target {LOW}",
        "CREATE TABLE high PARTITION OF target DEFAULT",
    ),
}
FEW = "SELECT i FROM generate_series(5, 7) AS i"
MORE = "SELECT i FROM generate_series(500, 900) AS i"


@pytest.fixture(params=LAYOUTS)
def target(request: pytest.FixtureRequest, postgres_database: str) -> Made:
    """A target that a run has filled: ``low`` with a batch, ``high`` with another."""
    harness = Made(postgres_database, *LAYOUTS[request.param])
    deliver(harness)
    return harness


def deliver(harness: Made, *batches: int, epoch: int = 1) -> None:
    """A run to its end."""
    with Run(harness, epoch) as run:
        run.take_over()
        for seq in batches or (0, 1):
            assert run.send(task(seq), content(seq)).error is None
        look_again(run)


def parent(harness: Made) -> str:
    """The table that ``low`` is a partition of."""
    found = scalar(harness.dsn, "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = 'low'::regclass")
    return str(found)


def bounds(harness: Made, name: str) -> str:
    return str(scalar(harness.dsn, f"SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = '{name}'"))


def test_a_truncated_partition_is_named(target: Made) -> None:
    execute(target.dsn, "VACUUM FULL high", "VACUUM FULL low")
    assert seen(target) is None

    execute(target.dsn, "TRUNCATE low")

    told = seen(target) or ""
    assert told.startswith("public.low of target public.target was truncated since the last run")
    assert "sink.may_be_emptied: true" in told


def test_a_truncated_partition_that_others_filled_again_is_named(target: Made) -> None:
    execute(target.dsn, "TRUNCATE high", f"INSERT INTO target {MORE}")

    assert "public.high of target public.target is stored in another file" in (seen(target) or "")
    assert "none of 10 rows that were sampled then can be found" in (seen(target) or "")


def test_a_truncated_target_is_told(target: Made) -> None:
    execute(target.dsn, "TRUNCATE target")

    assert "target public.target was truncated" in (seen(target) or "")


def test_a_truncated_target_is_told_although_others_filled_every_partition_again(target: Made) -> None:
    execute(target.dsn, "DELETE FROM target WHERE id BETWEEN 5 AND 9", "TRUNCATE target")
    execute(target.dsn, f"INSERT INTO target {MORE}", f"INSERT INTO target {FEW}")

    assert "was truncated and filled again" in (seen(target) or "")


@pytest.mark.parametrize("taken", ["DROP TABLE {name}", "ALTER TABLE {parent} DETACH PARTITION {name}"])
@pytest.mark.parametrize("filled", [False, True])
def test_a_partition_that_was_made_anew_is_told(target: Made, taken: str, filled: bool) -> None:
    upper, where = parent(target), bounds(target, "high")
    execute(
        target.dsn,
        taken.format(parent=upper, name="high"),
        f"CREATE TABLE another PARTITION OF {upper} {where}",
        *([f"INSERT INTO target {MORE}"] if filled else []),
    )

    told = "none of 10 rows" if filled else "is empty, and replaced public.high, which contained rows"
    assert "public.another of target public.target" in (seen(target) or "")
    assert told in (seen(target) or "")


def test_a_partition_that_was_copied_and_swapped_is_no_loss(target: Made) -> None:
    upper, where = parent(target), bounds(target, "high")
    execute(
        target.dsn,
        "CREATE TABLE another (LIKE high INCLUDING ALL)",
        "INSERT INTO another TABLE high",
        f"ALTER TABLE {upper} DETACH PARTITION high",
        f"ALTER TABLE {upper} ATTACH PARTITION another {where}",
        "DROP TABLE high",
    )

    assert seen(target) is None


@pytest.mark.parametrize("left_out", ["id = 19", "id > 12"])
def test_a_partition_that_was_swapped_for_an_older_copy_is_told(target: Made, left_out: str) -> None:
    upper, where = parent(target), bounds(target, "high")
    execute(
        target.dsn,
        "CREATE TABLE another (LIKE high INCLUDING ALL)",
        f"INSERT INTO another SELECT * FROM high WHERE NOT {left_out}",
        f"ALTER TABLE {upper} DETACH PARTITION high",
        f"ALTER TABLE {upper} ATTACH PARTITION another {where}",
        "DROP TABLE high",
    )

    assert "public.another of target public.target is another table" in (seen(target) or "")


def test_a_partition_that_was_detached_emptied_and_attached_again_is_told(target: Made) -> None:
    upper, where = parent(target), bounds(target, "high")
    execute(
        target.dsn,
        f"ALTER TABLE {upper} DETACH PARTITION high",
        "TRUNCATE high",
        f"ALTER TABLE {upper} ATTACH PARTITION high {where}",
    )

    assert "public.high of target public.target was truncated" in (seen(target) or "")


@pytest.mark.parametrize("statement", ["DROP TABLE low", "ALTER TABLE {parent} DETACH PARTITION low"])
def test_a_partition_that_is_taken_out_is_warned_of_once_and_refuses_nothing(
    target: Made, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    execute(target.dsn, statement.format(parent=parent(target)))

    assert seen(target) is None
    with caplog.at_level(logging.WARNING):
        deliver(target, 3, epoch=2)
        deliver(target, 4, epoch=3)
    told = "Pipeline orders, target public.target: public.low was removed since the last run"
    assert sum(record.getMessage().startswith(told) for record in caplog.records) == 1


def test_a_target_without_any_of_the_partitions_that_held_its_rows_is_told(target: Made) -> None:
    execute(target.dsn, "DROP TABLE low")
    assert seen(target) is None

    execute(target.dsn, "DROP TABLE high")

    assert "removed since the last run (public.low, public.high)" in (seen(target) or "")


def test_partitions_may_be_emptied_and_dropped_where_the_pipeline_says_so(
    target: Made, caplog: pytest.LogCaptureFixture
) -> None:
    target._sink["may_be_emptied"] = True
    execute(target.dsn, "TRUNCATE high", "DROP TABLE low")

    assert seen(target) is None
    deliver(target, 3, epoch=2)
    assert not [record for record in caplog.records if "taken out" in record.getMessage()]


def test_heirs_are_looked_at_like_partitions(postgres_database: str) -> None:
    made = "CREATE TABLE target (id bigint)", "CREATE TABLE heir (more int) INHERITS (target)"
    harness = Made(postgres_database, *made, "INSERT INTO heir SELECT i FROM generate_series(1, 30) AS i")
    deliver(harness)
    execute(harness.dsn, "ALTER TABLE heir ALTER more TYPE bigint")
    assert seen(harness) is None

    execute(harness.dsn, "TRUNCATE heir", f"INSERT INTO heir {MORE}")

    assert "public.heir of target public.target is stored in another file" in (seen(harness) or "")


def test_many_partitions_cost_one_query_and_a_snapshot_of_bounded_size(postgres_database: str) -> None:
    made = [f"CREATE TABLE p{i} PARTITION OF target FOR VALUES FROM ({i * 5}) TO ({i * 5 + 5})" for i in range(120)]
    harness = Made(postgres_database, "CREATE TABLE target (id bigint) PARTITION BY RANGE (id)", *made)
    execute(harness.dsn, "INSERT INTO target SELECT i % 600 FROM generate_series(1, 60000) AS i")
    deliver(harness)

    assert int(scalar(harness.dsn, "SELECT length(target_snapshot::text) FROM ckpt_sink_fence")) < 60_000
    execute(harness.dsn, "TRUNCATE p7", "VACUUM FULL p8")
    assert "public.p7 of target public.target was truncated" in (seen(harness) or "")


def test_rows_of_a_partition_that_the_role_may_not_read_are_left_alone(postgres_database: str) -> None:
    role = f"{postgres_database.rsplit('/', 1)[1]}_parent_only"
    harness = Made(
        postgres_database,
        "CREATE SCHEMA hidden",
        "CREATE TABLE target (id bigint) PARTITION BY RANGE (id)",
        f"CREATE TABLE low PARTITION OF target {LOW}",
        f"CREATE TABLE hidden.high PARTITION OF target {HIGH}",
        f"CREATE ROLE {role} LOGIN PASSWORD 'b'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {role}",
        f"GRANT SELECT, INSERT ON target, hidden.high TO {role}",
    )
    owner, harness.dsn = harness.dsn, postgres_database.replace("//ckpt:ckpt-test@", f"//{role}:b@")
    deliver(harness)
    execute(owner, "VACUUM FULL hidden.high", "VACUUM FULL low")
    assert seen(harness) is None

    execute(owner, "TRUNCATE hidden.high")

    assert "hidden.high of target public.target was truncated" in (seen(harness) or "")
