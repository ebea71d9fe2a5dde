"""Tests of actions on real PostgreSQL and Spark: phases, rewind, replay, skip, adoption."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError, StaleEpochError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions.adopt_other_ledger import adopt
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced, apply_fenced_or_store
from airflow_provider_ckpt.replication.actions.recover import recover
from airflow_provider_ckpt.replication.actions.rewind_target import position_of_batch
from airflow_provider_ckpt.replication.run.acquire import acquire
from tests.services.ledgers import make_ledger, new_ledger_file
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication
from tests.services.tables import add_rows, execute, scalar

PARTITION = "public.orders"


def action(orders: Replication, kind: ActionKind, *batches: BatchKey) -> None:
    """A person's act while nobody holds the lease."""
    assert orders.ledger.action("orders", Action(kind, batches), actor="ann", reason="test").applied


def copies(orders: Replication) -> dict[int, int]:
    """Return how many ids are in the target once, twice and so on."""
    counted = "SELECT n, count(*) FROM (SELECT count(*) n FROM target GROUP BY id) s GROUP BY n"
    found = scalar(orders.dsn, f"SELECT json_object_agg(n, count) FROM ({counted}) t(n, count)")
    return {int(times): ids for times, ids in found.items()}


def clean(orders: Replication) -> bool:
    """Return whether every invariant holds."""
    found = orders.ledger.audit("orders")
    assert found["violations"] == []
    return bool(found["ok"])


def test_a_drained_pipeline_runs_and_does_nothing_until_it_is_resumed(orders: Replication) -> None:
    orders.run()
    add_rows(orders.dsn, "orders", 1001, 1101)
    action(orders, ActionKind.DRAIN)

    assert orders.run().records == Counts()
    action(orders, ActionKind.STOP)
    assert orders.run().spark_started is False
    action(orders, ActionKind.RESUME)

    assert orders.run().records == Counts(100, 100, 0, 0)
    assert clean(orders)


def test_a_rewind_begins_a_new_generation_and_reads_again_from_there(orders: Replication) -> None:
    orders.run()

    result = apply_fenced(
        orders.setup(), Action(ActionKind.REWIND, positions={PARTITION: 801}), actor="ann", reason="bad load"
    )
    again = orders.run()

    assert result.before["checkpoint"] == {PARTITION: [1, 1001]}
    assert result.after["checkpoint"] == {PARTITION: [2, 801]}
    assert again.records == Counts(200, 200, 0, 0)
    assert copies(orders) == {1: 800, 2: 200}
    assert clean(orders)


def test_a_rewind_ahead_of_the_checkpoint_is_refused_and_changes_nothing(orders: Replication) -> None:
    orders.run()

    with pytest.raises(LedgerStateError, match="cannot rewind"):
        apply_fenced(orders.setup(), Action(ActionKind.REWIND, positions={PARTITION: 2000}), actor="ann", reason="typo")

    assert orders.run().records == Counts()
    assert clean(orders)


def test_a_batch_of_the_past_is_found_by_its_receipt(orders: Replication) -> None:
    orders.run()

    assert position_of_batch(orders.setup(), BatchKey(1, PARTITION, 3)) == {PARTITION: 301}
    with pytest.raises(ConfigError, match="no receipt"):
        position_of_batch(orders.setup(), BatchKey(1, PARTITION, 99))


def test_a_replayed_range_is_read_once_more_and_the_checkpoint_stays(orders: Replication) -> None:
    orders.run()

    replay = Action(ActionKind.REPLAY, ranges=((PARTITION, Range(101, 301)),))
    assert apply_fenced_or_store(orders.setup(), replay, actor="ann", reason="lost index").applied
    again = orders.run()

    assert again.records == Counts(200, 200, 0, 0)
    assert copies(orders) == {1: 800, 2: 200}
    assert orders.ledger.partitions("orders")[PARTITION].partition.committed == 1001
    assert orders.run().records == Counts()
    assert clean(orders)


def test_a_range_that_is_still_to_be_delivered_cannot_be_replayed(orders: Replication) -> None:
    orders.run()

    with pytest.raises(LedgerStateError, match="beyond the checkpoint"):
        apply_fenced(
            orders.setup(),
            Action(ActionKind.REPLAY, ranges=((PARTITION, Range(901, 1100)),)),
            actor="ann",
            reason="typo",
        )


def test_what_is_asked_for_during_a_run_is_done_between_its_waves(orders: Replication) -> None:
    with acquire(orders.setup()) as run:
        run.plan()
        asked = orders.ledger.action(
            "orders", Action(ActionKind.SKIP, (BatchKey(1, PARTITION, 2),)), actor="ann", reason="known to be bad"
        )
        assert (asked.applied, asked.intent is not None) == (False, True)
        run.execute(SessionEngine(orders.spark), rounds=True)
        summary = run.finish()

    assert summary.records == Counts(900, 900, 0, 0)
    assert orders.ledger.stored_actions("orders") == []
    assert copies(orders) == {1: 900}
    assert clean(orders)


def test_a_held_batch_blocks_the_checkpoint_until_it_is_released(orders: Replication) -> None:
    with acquire(orders.setup()) as run:
        run.plan()
        run.finish()
    action(orders, ActionKind.HOLD, BatchKey(1, PARTITION, 0))

    held = orders.run()
    assert "hold" in held.route
    assert orders.ledger.partitions("orders")[PARTITION].partition.committed == -(2**63)
    action(orders, ActionKind.RELEASE)

    orders.run()
    assert copies(orders) == {1: 1000}
    assert clean(orders)


def test_a_force_stop_fences_the_run_that_holds_the_lease(orders: Replication) -> None:
    with acquire(orders.setup()) as run:
        run.plan()
        apply_fenced(orders.setup(), Action(ActionKind.FORCE_STOP), actor="ann", reason="runaway")
        with pytest.raises(StaleEpochError):
            run.execute(SessionEngine(orders.spark), rounds=True)

    assert orders.run().records == Counts()
    action(orders, ActionKind.RESUME)
    orders.run()
    assert copies(orders) == {1: 1000}
    assert clean(orders)


def test_a_new_ledger_adopts_the_receipts_of_a_lost_one(orders: Replication, postgres_server: PostgresServer) -> None:
    orders.run()
    add_rows(orders.dsn, "orders", 1001, 1101)
    with make_ledger(postgres_server) as ledger:
        heir = Replication(orders.spark, ledger, orders.dsn, orders.document)
        with pytest.raises(ConfigError, match="adopt"):
            heir.run()

        adopt(heir.setup(), orders.ledger.id, actor="ann", reason="the old server burnt down")
        summary = heir.run()

        assert copies(heir) == {1: 1100}
        assert summary.records.delivered >= 100
        assert clean(heir)


def test_a_forgotten_pipeline_learns_from_the_sink_what_it_had_delivered(orders: Replication) -> None:
    orders.run()

    orders.ledger.delete_pipeline("orders", actor="ann", reason="a fresh start")
    orders.run()

    assert copies(orders) == {1: 1000}
    assert clean(orders)


def test_a_ledger_restored_from_an_old_backup_heals_itself_and_says_so(orders: Replication, tmp_path: Path) -> None:
    file, backup = tmp_path / "ckpt.db", tmp_path / "backup.db"
    new_ledger_file(file)
    with Ledger.open(f"sqlite:///{file}") as ledger:
        Replication(orders.spark, ledger, orders.dsn, orders.document).run()
    copyfile(file, backup)
    add_rows(orders.dsn, "orders", 1001, 1301)
    with Ledger.open(f"sqlite:///{file}") as ledger:
        Replication(orders.spark, ledger, orders.dsn, orders.document).run()
    copyfile(backup, file)
    add_rows(orders.dsn, "orders", 1301, 1401)

    with Ledger.open(f"sqlite:///{file}") as ledger:
        healed = Replication(orders.spark, ledger, orders.dsn, orders.document)
        summary = healed.run()

        assert copies(healed) == {1: 1400}
        assert summary.epoch == 3
        imported = [event["seq"] for event in ledger.events("orders") if event["kind"] == "receipt_imported"]
        assert imported == [10, 11, 12]
        assert clean(healed)


def test_a_ledger_restored_from_before_a_rewind_goes_on_in_its_generation(orders: Replication, tmp_path: Path) -> None:
    file, backup = tmp_path / "ckpt.db", tmp_path / "backup.db"
    new_ledger_file(file)
    with Ledger.open(f"sqlite:///{file}") as ledger:
        Replication(orders.spark, ledger, orders.dsn, orders.document).run()
    copyfile(file, backup)
    add_rows(orders.dsn, "orders", 1001, 1301)
    with Ledger.open(f"sqlite:///{file}") as ledger:
        lost = Replication(orders.spark, ledger, orders.dsn, orders.document)
        lost.run()
        apply_fenced(
            lost.setup(), Action(ActionKind.REWIND, positions={PARTITION: 1101}), actor="ann", reason="bad load"
        )
        lost.run()
    copyfile(backup, file)
    add_rows(orders.dsn, "orders", 1301, 1401)

    with Ledger.open(f"sqlite:///{file}") as ledger:
        healed = Replication(orders.spark, ledger, orders.dsn, orders.document)
        summary = healed.run()

        assert copies(healed) == {1: 1200, 2: 200}
        assert (summary.generation, summary.records) == (2, Counts(600, 600, 0, 0))
        assert ledger.partitions("orders")[PARTITION].partition.base == 1101
        apply_fenced(
            healed.setup(), Action(ActionKind.REWIND, positions={PARTITION: 1301}), actor="ann", reason="once more"
        )
        assert healed.run().records == Counts(100, 100, 0, 0)
        assert copies(healed) == {1: 1100, 2: 300}
        assert clean(healed)


def test_rows_that_turn_up_late_are_delivered_by_recovery_and_no_newer_version_is_lost(orders: Replication) -> None:
    execute(orders.dsn, "CREATE TABLE visits (at timestamptz NOT NULL, id int, who text)")
    rows = "SELECT timestamptz '2024-03-01' + i * interval '1 minute', i % 150, 'v' || i FROM generate_series(1, 300) i"
    execute(orders.dsn, f"INSERT INTO visits {rows}")
    execute(orders.dsn, "CREATE TABLE seen (at timestamptz, id int PRIMARY KEY, who text)")
    visits = orders.changed(
        name="visits",
        source={"table": "visits", "cursor": "at"},
        sink={"table": "seen", "mode": "upsert", "key": ["id"]},
        recovery={"window": "7d", "settle_lag": "0s"},
    )
    visits.run()
    execute(orders.dsn, "INSERT INTO visits VALUES ('2024-03-01 02:30:30Z', 9001, 'late')")
    assert visits.run().records == Counts()

    listed = recover(visits.setup(), dry_run=True, actor="ann")
    asked = recover(visits.setup(), dry_run=False, actor="ann")
    visits.run()

    assert [(item["reason"], item["read"], item["shown"]) for item in listed["missing"]] == [("late", 100, 101)]
    assert asked["applied"]
    assert asked["rewinds_to"] == {"public.visits": visits.ledger.partitions("visits")["public.visits"].partition.base}
    newest = "SELECT DISTINCT ON (id) at, id, who FROM visits ORDER BY id, at DESC"
    assert execute(orders.dsn, "SELECT at, id, who FROM seen ORDER BY id") == execute(orders.dsn, newest)
    assert recover(visits.setup(), dry_run=True, actor="ann")["missing"] == []
    assert visits.ledger.audit("visits")["violations"] == []
