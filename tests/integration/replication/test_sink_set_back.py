"""A sink that went back in time, was made anew or is another one is refused before anything is sent to it."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.errors import ConfigError, SinkChangedError
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication
from tests.services.tables import add_rows, execute, make_target, scalar

SINK_TABLES = ("target", "ckpt_sink_fence", "ckpt_sink_receipt", "ckpt_sink_dead_letter", "ckpt_sink_replay")


def back_up(dsn: str) -> None:
    """Keep a copy of the target and its bookkeeping."""
    execute(dsn, *(f"CREATE TABLE kept_{table} AS TABLE {table}" for table in SINK_TABLES))


def restore(dsn: str) -> None:
    """Bring the target and its bookkeeping back to the copy."""
    execute(
        dsn,
        *(f"DELETE FROM {table}" for table in SINK_TABLES),
        *(f"INSERT INTO {table} TABLE kept_{table}" for table in SINK_TABLES),
    )


def refused(orders: Replication) -> str:
    """Run, expect a refusal that leaves the sink and the ledger as they are; its text."""
    before = scalar(orders.dsn, "SELECT count(*) FROM target")
    checkpoint = {name: record.partition.committed for name, record in orders.ledger.partitions("orders").items()}
    with pytest.raises(SinkChangedError) as raised:
        orders.run()
    status = orders.ledger.status("orders")
    assert not status["lease"]["held"]
    assert {part["id"]: part["committed"] for part in status["partitions"]} == checkpoint
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == before
    assert "pipeline orders" in str(raised.value)
    return str(raised.value)


def test_a_sink_restored_to_before_the_newest_run_is_refused(orders: Replication) -> None:
    orders.run()
    back_up(orders.dsn)
    add_rows(orders.dsn, "orders", 1001, 1501)
    newest = orders.run()
    restore(orders.dsn)

    told = refused(orders)

    assert f"its fence stands at epoch {newest.epoch - 1}, and this ledger raised it to {newest.epoch}" in told
    assert "airflow ckpt accept-sink orders --resend" in told


def test_a_sink_restored_to_a_moment_within_the_newest_run_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DELETE FROM target WHERE id >= 901", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")

    told = refused(orders)

    assert "1 receipts of batches that were delivered are missing, the first of them of public.orders#9" in told


def test_a_sink_restored_to_within_an_older_run_is_refused_after_idle_runs(orders: Replication) -> None:
    first = orders.run()
    orders.run()
    execute(
        orders.dsn,
        "DELETE FROM target WHERE id >= 901",
        "DELETE FROM ckpt_sink_receipt WHERE seq = 9",
        f"UPDATE ckpt_sink_fence SET epoch = {first.epoch}",
    )

    assert "its fence stands at epoch" in refused(orders)


def test_a_target_that_was_dropped_and_made_again_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE target")
    make_target(orders.dsn, "target")

    assert "the target is not the one that was written" in refused(orders)


def test_bookkeeping_that_was_dropped_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE ckpt_sink_fence, ckpt_sink_receipt")

    assert "its fence stands at epoch 0" in refused(orders)


def test_receipts_that_were_emptied_are_noticed_though_the_fence_stands_and_runs_were_idle(orders: Replication) -> None:
    orders.run()
    orders.run()
    execute(orders.dsn, "DELETE FROM ckpt_sink_receipt")

    assert "receipts of batches that were delivered are missing" in refused(orders)


def test_another_sink_under_the_same_name_is_refused_before_rows_are_split(orders: Replication) -> None:
    orders.run()
    make_target(orders.dsn, "elsewhere")
    add_rows(orders.dsn, "orders", 1001, 1101)

    told = refused(orders.changed(sink={"table": "elsewhere"}))

    assert "the sink is another one" in told
    assert "airflow ckpt move orders" in told
    assert scalar(orders.dsn, "SELECT count(*) FROM elsewhere") == 0
    assert orders.run().records.delivered == 100


def test_the_same_target_by_another_way_is_no_other_sink(orders: Replication, postgres_server: PostgresServer) -> None:
    orders.run()
    add_rows(orders.dsn, "orders", 1001, 1101)

    assert orders.changed(sink={"table": "public.target"}).run().records.delivered == 100


def test_a_ledger_that_is_older_than_its_sink_goes_on(orders: Replication) -> None:
    first = orders.run()
    execute(orders.dsn, f"UPDATE ckpt_sink_fence SET epoch = {first.epoch + 7}")

    assert orders.run().epoch == first.epoch + 8


def test_a_target_that_was_corrected_before_anything_was_sent_is_no_move(orders: Replication) -> None:
    execute(orders.dsn, "CREATE TABLE narrow (id text)")
    with pytest.raises(ConfigError, match="narrow"):
        orders.changed(sink={"table": "narrow"}).run()

    assert orders.run().records.delivered == 1000
