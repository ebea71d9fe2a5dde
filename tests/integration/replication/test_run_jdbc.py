"""Runs from a table that Spark reads by JDBC: each record once, with dead letters, despite failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.errors import CkptError, ErrorType
from airflow_provider_ckpt.core.lane_assignment import distribute
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
from airflow_provider_ckpt.engines.factory import make_engine
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.replication.actions.dead_letters import make_action
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from airflow_provider_ckpt.replication.actions.recover import recover
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.wave import run_wave
from tests.chaos.evidence import gather, judge
from tests.services.jdbc import CONNECTION, H2Server, drivers, to_postgres
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer, through
from tests.services.proxy import Break, Proxy
from tests.services.replication import DATABASE, Replication
from tests.services.tables import add_rows, execute, scalar
from tests.services.warm_spark import WarmSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION = "public.orders"


@pytest.fixture
def bought(orders: Replication) -> Replication:
    """The same orders, read by JDBC."""
    source = {"type": "jdbc", "connection": CONNECTION, "table": PARTITION, "close_wait": 0, "jars": drivers()}
    return replace(orders.changed(source=source), others={CONNECTION: to_postgres(orders.dsn)})


def books(bought: Replication) -> list[str]:
    """Return the faults found between tables, receipts and ledger."""
    return judge(gather(bought.dsn, bought.ledger, "orders", "orders", "target")).faults


def dead_letters(dsn: str) -> dict[int, dict[str, Any]]:
    """The rows that dead letters hold, by id."""
    found = [json.loads(bytes(row[0])) for row in execute(dsn, "SELECT value FROM ckpt_sink_dead_letter")]
    return {row["id"]: row for row in found}


def test_every_row_once_then_what_is_new_and_nothing_without_spark(bought: Replication) -> None:
    first = bought.run()
    assert first.records == Counts(1000, 1000, 0, 0)
    assert (first.batches, first.route) == (10, ["done"])
    assert books(bought) == []

    idle = bought.run()
    assert (idle.records, idle.spark_started) == (Counts(), False)

    add_rows(bought.dsn, "orders", 1001, 1251)
    again = bought.run()
    assert again.records == Counts(250, 250, 0, 0)
    assert again.checkpoint[PARTITION] == {"before": 1001, "after": 1251}
    assert books(bought) == []


def test_spark_that_is_started_for_the_run_has_the_driver(bought: Replication) -> None:
    summary = replicate(bought.setup(), SubmitEngine(bought.pipeline))

    assert summary.records == Counts(1000, 1000, 0, 0)
    assert books(bought) == []


def test_spark_that_stays_has_the_driver_and_reads_on_in_the_next_run(bought: Replication, tmp_path: Path) -> None:
    with WarmSpark(tmp_path / "runtime") as warm, warm.found():
        first = replicate(bought.setup(), make_engine(bought.pipeline))
        add_rows(bought.dsn, "orders", 1001, 1251)
        again = replicate(bought.setup(), make_engine(bought.pipeline))

        assert (first.records, again.records) == (Counts(1000, 1000, 0, 0), Counts(250, 250, 0, 0))
        assert warm.state()["sessions"] == 1
    assert books(bought) == []


def test_what_transform_and_target_refuse_becomes_dead_letters_with_the_row_as_it_was(bought: Replication) -> None:
    execute(bought.dsn, "CREATE TABLE ratios (id bigint CHECK (id % 100 <> 7), ratio double precision)")
    pipeline = bought.changed(
        sink={"table": "ratios"},
        transform={"where": "id > 100", "select": {"id": "id", "ratio": "1000 / (id % 50)"}},
    )

    summary = pipeline.run()

    assert summary.records == Counts(1000, 873, 100, 27)
    assert summary.errors == {ErrorType.TRANSFORM_EVALUATION.value: 18, ErrorType.SINK.value: 9}
    found = dead_letters(bought.dsn)
    assert sorted(found) == sorted([*range(150, 1001, 50), *range(107, 1001, 100)])
    customer, note = execute(bought.dsn, "SELECT customer, note FROM orders WHERE id = 107")[0]
    assert (found[107]["customer"], found[107]["note"], found[107]["created_at"]) == (
        customer, note, "2024-01-01T00:01:47+00:00",
    )  # fmt: skip

    execute(bought.dsn, "ALTER TABLE ratios DROP CONSTRAINT ratios_id_check")
    setup = pipeline.setup()
    action = make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection(types=frozenset({ErrorType.SINK})))
    apply_fenced_or_store(setup, action, actor="ann", reason="mended")
    assert pipeline.run().records == Counts(9, 9, 0, 0)
    assert scalar(bought.dsn, "SELECT count(*) FROM ratios WHERE id % 100 = 7") == 9


def test_a_batch_whose_attempts_are_used_up_is_dead_lettered_whole(bought: Replication) -> None:
    execute(
        bought.dsn,
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 150 THEN RAISE EXCEPTION 'never' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    summary = bought.changed(retry={"max_attempts": 2, "rounds": 1, "initial_delay_ms": 1}).run()

    assert summary.records == Counts(1000, 900, 0, 100)
    assert sorted(dead_letters(bought.dsn)) == list(range(101, 201))
    assert dead_letters(bought.dsn)[150]["status"] == scalar(bought.dsn, "SELECT status FROM orders WHERE id = 150")


def test_a_lane_that_spark_runs_again_finds_its_receipts(spark: SparkSession, bought: Replication) -> None:
    with acquire(bought.setup()) as run:
        run.plan()
        tasks = run.source.locate([BatchTask(batch.key, batch.range, 1) for batch in run.planned()], [])
        setup = run.setup
        context = SinkContext(setup.sink_id, "orders", run.epoch)
        connections = {name: setup.connections(name) for name in bought.pipeline.connections}
        job = Job(bought.pipeline.document(), context, run.source.shape(), connections)
        wave = Wave(1, distribute(tasks, 2, pinned=False), 60.0)

        first, second = run_wave(spark, job, wave), run_wave(spark, job, wave)
        bought.ledger.release(run.lease)

    assert {outcome.outcome for outcome in (*first, *second)} == {AttemptOutcome.DELIVERED}
    assert ({outcome.receipt_existed for outcome in first}, {outcome.receipt_existed for outcome in second}) == (
        {False},
        {True},
    )
    assert execute(bought.dsn, "SELECT count(*), count(DISTINCT id) FROM target") == [(1000, 1000)]


def test_a_query_that_fails_for_now_is_tried_again_and_one_that_always_fails_halts(bought: Replication) -> None:
    execute(
        bought.dsn,
        "CREATE SEQUENCE tries",
        """
        CREATE FUNCTION fail_first(id bigint) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN
            IF id = 333 AND nextval('tries') <= 2 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF;
            RETURN 1 / (id - 777)::int;
        END $$
        """,
        "CREATE VIEW shaky AS SELECT *, fail_first(id) AS risk FROM orders",
        "CREATE VIEW sound AS SELECT *, fail_first(id) AS risk FROM orders WHERE id < 700",
        "ALTER TABLE target ADD risk int",
    )
    sound = bought.changed(source={"table": "public.sound"}, retry={"initial_delay_ms": 1})
    assert sound.run().records == Counts(699, 699, 0, 0)
    assert scalar(bought.dsn, "SELECT last_value FROM tries") == 3
    assert execute(bought.dsn, "SELECT count(*), count(DISTINCT id) FROM target") == [(699, 699)]

    shaky = bought.changed(name="shaky", source={"table": "public.shaky"})
    with pytest.raises(CkptError, match=r"\[Source\].*division by zero") as told:
        shaky.run()
    assert told.value.sqlstate == "22012"
    [record] = bought.ledger.partitions("shaky").values()
    assert {batch.state for batch in record.partition.blocking.values()} == {BatchState.PLANNED}
    assert scalar(bought.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 0
    assert scalar(bought.dsn, "SELECT count(*) FROM target WHERE id BETWEEN 1 AND 100") == 200


def test_a_source_that_goes_away_while_spark_reads_fails_the_run_and_counts_against_no_batch(
    bought: Replication, postgres_server: PostgresServer
) -> None:
    with Proxy() as proxy:
        proxy.lead_to(postgres_server.port)
        beyond = replace(bought, others={CONNECTION: to_postgres(through(proxy, bought.dsn))})
        beyond = beyond.changed(retry={"initial_delay_ms": 1})
        sprung = proxy.trap(rb'ckpt_rows[^;]{1,20}"ckpt_at"', how=Break.BEFORE, refuse=True)

        with pytest.raises(CkptError, match=f"connection '{CONNECTION}'") as told:
            beyond.run()

        assert sprung.is_set()
        assert (told.value.type, told.value.is_outage) == (ErrorType.SOURCE, True)
        [record] = bought.ledger.partitions("orders").values()
        waiting = record.partition.blocking.values()
        assert {(batch.state, batch.round) for batch in waiting} == {(BatchState.PLANNED, 1)}
        proxy.accept()
        beyond.run()

    assert books(bought) == []


def test_rows_that_come_late_are_found_by_recovery(bought: Replication) -> None:
    execute(
        bought.dsn,
        "DELETE FROM orders WHERE id = 500",
        "CREATE TABLE kept (LIKE target, PRIMARY KEY (id))",
    )
    upsert = bought.changed(
        sink={"table": "kept", "mode": "upsert", "key": ["id"]}, recovery={"window": "7d", "settle_lag": "0s"}
    )
    upsert.run()
    add_rows(bought.dsn, "orders", 500, 501)
    assert upsert.run().records == Counts()

    asked = recover(upsert.setup(), dry_run=False, actor="ann")
    upsert.run()

    assert [(item["reason"], item["read"], item["shown"]) for item in asked["missing"]] == [("late", 100, 101)]
    assert scalar(bought.dsn, "SELECT count(*) FROM kept") == 1000


@pytest.fixture
def shop(spark: SparkSession, h2: H2Server, postgres_server: PostgresServer) -> Iterator[Replication]:
    """A pipeline from H2 to PostgreSQL, by a time that rows share."""
    database, dsn = h2.new_database(), postgres_server.new_database()
    database.execute(
        "CREATE TABLE sales (sold timestamp(3), id integer, amount numeric(9, 2), note varchar)",
        "INSERT INTO sales SELECT DATEADD('SECOND', x / 4, TIMESTAMP '2024-03-31 02:00:00.5'), x, x / 8.0, 'n' || x "
        "FROM SYSTEM_RANGE(0, 399)",
    )
    execute(dsn, "CREATE TABLE sales (sold timestamp, id int, amount numeric(9, 2), note text)")
    document = {
        "name": "sales",
        "source": {
            "type": "jdbc", "connection": CONNECTION, "table": "PUBLIC.SALES", "cursor": "SOLD", "jars": drivers(),
            "close_wait": 0,
        },
        "transform": {"select": {"sold": "SOLD", "id": "ID", "amount": "AMOUNT", "note": "NOTE"}},
        "sink": {"type": "postgres", "connection": DATABASE, "table": "sales"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 30},
    }  # fmt: skip
    with make_ledger(postgres_server) as ledger:
        yield Replication(spark, ledger, dsn, document, {CONNECTION: database.connection})


def test_another_database_s_table_arrives_whole_and_once(shop: Replication) -> None:
    assert shop.run().records == Counts(400, 400, 0, 0)
    assert shop.run().records == Counts()

    wrong = """
        SELECT count(*) FROM generate_series(0, 399) AS x FULL JOIN sales s ON s.id = x
        WHERE (s.sold, s.amount, s.note) IS DISTINCT FROM
            (timestamp '2024-03-31 02:00:00.5' + (x / 4) * interval '1 second', round(x / 8.0, 2), 'n' || x)
    """
    assert execute(shop.dsn, "SELECT count(*), count(DISTINCT id) FROM sales") == [(400, 400)]
    assert scalar(shop.dsn, wrong) == 0
