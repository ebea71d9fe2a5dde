"""Runs from table to table deliver new rows once; with a transform, with upserts, and despite an outage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from tests.chaos.evidence import gather, judge
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import add_rows, execute, make_source, make_target, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _books(orders: Replication) -> list[str]:
    """Return the faults found between tables, receipts and ledger."""
    return judge(gather(orders.dsn, orders.ledger, "orders", "orders", "target")).faults


def test_the_first_run_delivers_every_row_once_and_the_books_balance(orders: Replication) -> None:
    summary = orders.run()

    assert summary.records == Counts(1000, 1000, 0, 0)
    assert (summary.batches, summary.route, summary.spark_started) == (10, ["done"], True)
    assert _books(orders) == []


def test_the_books_do_not_balance_once_a_row_is_doubled_or_lost_or_a_receipt_is_gone(orders: Replication) -> None:
    orders.run()
    execute(
        orders.dsn,
        "INSERT INTO target SELECT * FROM target WHERE id = 7",
        "DELETE FROM target WHERE id = 8",
        "DELETE FROM ckpt_sink_receipt WHERE seq = 4",
    )

    findings = judge(gather(orders.dsn, orders.ledger, "orders", "orders", "target"))

    assert (findings.lost, findings.doubled) == (1, 1)
    assert "sink: no receipt for [401, 501)" in findings.faults


def test_a_run_with_nothing_new_starts_no_spark(orders: Replication) -> None:
    orders.run()

    again = orders.run()

    assert again.records == Counts()
    assert (again.batches, again.route, again.spark_started) == (0, ["done"], False)
    assert _books(orders) == []


def test_only_new_rows_are_replicated(orders: Replication) -> None:
    orders.run()
    add_rows(orders.dsn, "orders", 1001, 1251)

    again = orders.run()

    assert again.records == Counts(250, 250, 0, 0)
    assert again.batches == 3
    [moved] = again.checkpoint.values()
    assert (moved["before"], moved["after"]) == (1001, 1251)
    assert _books(orders) == []


def test_every_run_has_a_greater_epoch(orders: Replication) -> None:
    assert orders.run().epoch < orders.run().epoch


def test_a_pipeline_that_starts_from_latest_leaves_what_is_there(orders: Replication) -> None:
    latest = orders.changed(source={"start_from": "latest"})
    assert latest.run().records == Counts()
    add_rows(orders.dsn, "orders", 1001, 1011)

    assert latest.run().records == Counts(10, 10, 0, 0)
    assert scalar(orders.dsn, "SELECT min(id) FROM target") == 1001


def test_where_and_select_with_a_cast_filter_and_convert(orders: Replication) -> None:
    execute(orders.dsn, "CREATE TABLE totals (id bigint, cents bigint, status text)")
    summary = orders.changed(
        sink={"table": "totals"},
        transform={
            "where": "status = 'paid'",
            "select": {"id": "id", "cents": "cast(round(amount * 100) AS bigint)", "status": "upper(status)"},
        },
    ).run()

    assert summary.records == Counts(1000, 250, 750, 0)
    wrong = """
        SELECT count(*) FROM orders o FULL JOIN totals t USING (id)
        WHERE (o.status = 'paid') IS DISTINCT FROM (t.id IS NOT NULL)
           OR t.id IS NOT NULL AND (t.cents, t.status) <> (round(o.amount * 100)::bigint, 'PAID')
    """
    assert scalar(orders.dsn, wrong) == 0


def test_a_failing_expression_costs_its_record_only(orders: Replication) -> None:
    execute(orders.dsn, "CREATE TABLE ratios (id bigint, ratio double precision)")
    summary = orders.changed(
        sink={"table": "ratios"}, transform={"select": {"id": "id", "ratio": "1000 / (id % 10)"}}
    ).run()

    assert summary.records == Counts(1000, 900, 0, 100)
    assert summary.route == ["dead_letters", "done"]
    assert summary.errors == {ErrorType.TRANSFORM_EVALUATION.value: 100}
    assert scalar(orders.dsn, "SELECT count(*) FROM ratios WHERE id % 10 = 0") == 0


def test_an_expression_that_does_not_parse_is_refused_before_anything_is_sent(orders: Replication) -> None:
    with pytest.raises(ConfigError, match="where"):
        orders.changed(transform={"where": "status == = 'paid'"}).run()
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 0
    assert orders.run().records == Counts(1000, 1000, 0, 0)


def test_a_first_start_whose_column_the_target_lacks_is_refused_and_leaves_nothing(orders: Replication) -> None:
    execute(orders.dsn, "CREATE TABLE narrow (id bigint)")
    with pytest.raises(ConfigError, match="no column"):
        orders.changed(sink={"table": "narrow"}).run()

    assert scalar(orders.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ckpt%'") == 0


def test_an_upsert_keeps_the_newest_version_of_each_key(orders: Replication) -> None:
    execute(
        orders.dsn,
        "CREATE TABLE customers (customer integer PRIMARY KEY, last_order bigint NOT NULL)",
        "UPDATE orders SET customer = id % 7",
    )
    by_key = orders.changed(
        sink={"table": "customers", "mode": "upsert", "key": ["customer"]},
        transform={"select": {"customer": "customer", "last_order": "id"}},
    )

    assert by_key.run().records == Counts(1000, 1000, 0, 0)
    add_rows(orders.dsn, "orders", 1001, 1002)
    execute(orders.dsn, "UPDATE orders SET customer = 3 WHERE id = 1001")
    assert by_key.run().records == Counts(1, 1, 0, 0)

    stale = """
        SELECT count(*) FROM customers c
        WHERE last_order <> (SELECT max(id) FROM orders o WHERE o.customer = c.customer)
    """
    assert scalar(orders.dsn, "SELECT count(*) FROM customers") == 7
    assert scalar(orders.dsn, stale) == 0


def test_a_batch_that_fails_for_now_is_tried_again(orders: Replication) -> None:
    execute(
        orders.dsn,
        "CREATE SEQUENCE tries",
        """
        CREATE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') <= 2 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF;
            RETURN NULL;
        END $$
        """,
        "CREATE TRIGGER fail BEFORE INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION fail_first()",
    )

    summary = orders.run()

    assert summary.records == Counts(1000, 1000, 0, 0)
    assert summary.retried == 2
    assert summary.route == ["done"]
    assert _books(orders) == []


def test_a_batch_whose_attempts_are_used_up_is_dead_lettered_whole(orders: Replication) -> None:
    execute(
        orders.dsn,
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 150 THEN RAISE EXCEPTION 'never' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    summary = orders.changed(retry={"max_attempts": 2, "rounds": 2, "initial_delay_ms": 1}).run()

    assert summary.records == Counts(1000, 900, 0, 100)
    assert summary.retried == 3
    assert scalar(orders.dsn, "SELECT count(*) FROM target WHERE id BETWEEN 101 AND 200") == 0
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter WHERE pipeline = 'orders'") == 100


def test_a_full_disk_at_the_sink_leaves_batches_planned_and_dead_letters_nothing(orders: Replication) -> None:
    execute(
        orders.dsn,
        """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 550 THEN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER full_disk BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION full_disk()",
    )
    one_lane = orders.changed(retry={"initial_delay_ms": 1}, consumer={"lanes": 1})

    with pytest.raises(CkptError, match="could not extend file"):
        one_lane.run()

    [record] = orders.ledger.partitions("orders").values()
    assert {batch.state for batch in record.partition.blocking.values()} == {BatchState.PLANNED}
    assert record.partition.committed == 501
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 500
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 0

    execute(orders.dsn, "DROP TRIGGER full_disk ON target")
    assert one_lane.run().records == Counts(500, 500, 0, 0)
    assert _books(orders) == []


def test_a_sink_that_is_down_is_one_clear_error_and_the_next_run_carries_on(
    spark: SparkSession, postgres_server: PostgresServer
) -> None:
    with PostgresServer(in_memory=True) as server, make_ledger(postgres_server) as ledger:
        dsn = server.new_database()
        make_source(dsn, "orders", 300)
        make_target(dsn, "target")
        orders = Replication(spark, ledger, dsn, orders_pipeline())
        server.stop(keep=True)
        with pytest.raises(CkptError, match="cannot connect to PostgreSQL"):
            orders.run()
        server.start()

        assert orders.run().records == Counts(300, 300, 0, 0)
