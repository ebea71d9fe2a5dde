"""A sink that was restored, created again or replaced is refused before a run sends anything to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import psycopg2
import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, LedgerStateError, SinkChangedError, SourceError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.run.acquire import acquire
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

    assert f"its fence is at epoch {newest.epoch - 1}, and this ledger raised it to {newest.epoch}" in told
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

    assert "its fence is at epoch" in refused(orders)


def test_a_target_that_was_dropped_and_made_again_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE target")
    make_target(orders.dsn, "target")

    assert "the target is not the one that was written" in refused(orders)


def test_a_target_that_was_truncated_after_its_first_load_is_refused_though_others_wrote_since(
    orders: Replication,
) -> None:
    orders.run()
    first_row = "CREATE TABLE another AS SELECT * FROM target LIMIT 1"
    execute(
        orders.dsn, first_row, "UPDATE another SET id = 7777", "TRUNCATE target", "INSERT INTO target TABLE another"
    )

    assert "was truncated and filled again" in refused(orders)


def test_a_target_that_was_truncated_again_after_the_first_time_was_accepted_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "CREATE TABLE another AS SELECT * FROM target LIMIT 1", "UPDATE another SET id = 7777")
    execute(orders.dsn, "TRUNCATE target")
    accept(orders, resend=False)
    add_rows(orders.dsn, "orders", 1001, 1101)
    orders.run()
    execute(orders.dsn, "TRUNCATE target", "INSERT INTO target TABLE another")

    assert "was truncated and filled again" in refused(orders)


def test_a_target_that_is_emptied_every_night_goes_on_where_the_pipeline_permits_it(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "TRUNCATE target")
    assert "write sink.may_be_emptied: true" in refused(orders)
    nightly = orders.changed(sink={"may_be_emptied": True})

    for night in range(3):
        add_rows(orders.dsn, "orders", 1001 + 100 * night, 1101 + 100 * night)
        assert nightly.run().records.delivered == 100
        found = audit_sink(nightly.setup(), lambda _: None)
        assert (found["agrees"], found["differences"]) == (True, [])
        assert found["compared"]["target_rows_unknown"] == "the target may be emptied (sink.may_be_emptied)"
        execute(orders.dsn, "TRUNCATE target")


def lose_the_newest_run(orders: Replication) -> None:
    back_up(orders.dsn)
    add_rows(orders.dsn, "orders", 1001, 1101)
    orders.run()
    restore(orders.dsn)


def lose_a_batch(orders: Replication) -> None:
    execute(orders.dsn, "DELETE FROM ckpt_sink_receipt WHERE seq = 9")


def make_anew(orders: Replication) -> None:
    execute(orders.dsn, "DROP TABLE target")
    make_target(orders.dsn, "target")


def lose_the_bookkeeping(orders: Replication) -> None:
    execute(orders.dsn, "DROP TABLE ckpt_sink_fence, ckpt_sink_receipt")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lose_the_newest_run, "its fence is at epoch"),
        (lose_a_batch, "1 receipts of batches that were delivered are missing"),
        (make_anew, "the target is not the one that was written"),
        (lose_the_bookkeeping, "its fence is at epoch 0"),
    ],
)
def test_a_sink_that_went_back_is_refused_although_its_target_may_be_emptied(
    orders: Replication, damage: Callable[[Replication], None], told: str
) -> None:
    nightly = orders.changed(sink={"may_be_emptied": True})
    nightly.run()
    execute(orders.dsn, "TRUNCATE target")
    nightly.run()
    damage(nightly)

    assert told in refused(nightly)


def test_resend_to_a_target_that_was_emptied_on_purpose_sends_no_more_than_what_has_no_receipt(
    orders: Replication,
) -> None:
    nightly = orders.changed(sink={"may_be_emptied": True})
    nightly.run()
    lose_a_batch(nightly)
    execute(orders.dsn, "TRUNCATE target")
    refused(nightly)

    assert accept(nightly, resend=True) == "public.orders is sent again from 901 on"
    nightly.run()

    assert counted(orders) == (100, 100)


def test_resend_to_a_target_that_was_made_anew_and_may_be_emptied_does_not_guess(orders: Replication) -> None:
    nightly = orders.changed(sink={"may_be_emptied": True})
    nightly.run()
    make_anew(nightly)
    refused(nightly)

    with pytest.raises(ConfigError, match=r"may be emptied on purpose .* unknown which rows are lost.*--from"):
        accept(nightly, resend=True)
    accept(nightly, resend=True, start={"public.orders": 901})
    nightly.run()

    assert counted(orders) == (100, 100)


def test_another_system_identifier_is_told_as_what_pg_upgrade_does_with_the_command_that_goes_on(
    orders: Replication,
) -> None:
    orders.run()
    written = orders.ledger.expected_sink_state("orders").target
    assert written is not None
    system, rest = written.split("/", 1)
    with orders.ledger._engine.begin() as connection:
        connection.execute(sa.update(tables.pipeline).values(sink_target=f"7/{rest}"))

    told = refused(orders)

    assert f"its system identifier was 7 and is {system}; database oid and table oid are as they were" in told
    assert "pg_upgrade" in told
    assert "restored from an older copy" not in told
    assert 'airflow ckpt accept-sink orders --keep --reason "..."' in told
    accept(orders, resend=False)
    assert orders.run().records.delivered == 0


def test_a_target_that_was_made_anew_is_told_as_another_table_of_the_same_database(orders: Replication) -> None:
    orders.run()
    make_anew(orders)

    told = refused(orders)

    assert "its table oid was " in told
    assert "; system identifier and database oid are as they were (a table that was dropped and created" in told


def test_bookkeeping_that_was_dropped_is_refused(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE ckpt_sink_fence, ckpt_sink_receipt")

    assert "its fence is at epoch 0" in refused(orders)


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

    assert "the declared sink is not the one that this pipeline delivered to" in told
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


def accept(orders: Replication, *, resend: bool, start: dict[str, int] | None = None) -> str:
    """Accept the sink as a person would; what the answer says comes next."""
    setup = orders.setup()
    asked = ActionContext(orders.ledger, "orders", lambda: setup, "test:person", "restored")
    answer = change_sink(asked, accept_sink.make_acceptance(setup, resend=resend, start=start))
    assert answer["applied"]
    [event] = [
        event
        for event in orders.ledger.events("orders")
        if event["kind"] == ("resend_to_sink" if resend else "keep_sink")
    ]
    assert (event["actor"], event["detail"]["reason"]) == ("test:person", "restored")
    return str(answer["next"])


def die(*_: object, **__: object) -> None:
    """Stands for a process that dies where the ledger would store something."""
    raise KeyboardInterrupt


def leave_unsettled(orders: Replication, first: int, beyond: int) -> None:
    """Deliver one more batch with a run that dies before it has settled it."""
    add_rows(orders.dsn, "orders", first, beyond)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders.ledger, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            orders.run()
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == beyond - 1


def counted(orders: Replication, table: str = "target") -> tuple[int, int]:
    """Rows and different rows."""
    found = execute(orders.dsn, f"SELECT count(*), count(DISTINCT id) FROM {table}")[0]
    return int(found[0]), int(found[1])


def test_resend_sends_exactly_what_a_restored_sink_has_no_receipt_for(orders: Replication) -> None:
    orders.run()
    back_up(orders.dsn)
    add_rows(orders.dsn, "orders", 1001, 1501)
    orders.run()
    add_rows(orders.dsn, "orders", 1501, 1601)
    restore(orders.dsn)
    refused(orders)

    assert "public.orders is sent again from 1001 on" in accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1600, 1600)
    assert orders.run().records.delivered == 0


def test_resend_fills_a_hole_without_doubling_what_follows_it(orders: Replication) -> None:
    orders.run()
    execute(
        orders.dsn,
        "DELETE FROM target WHERE id BETWEEN 301 AND 500 OR id > 900",
        "DELETE FROM ckpt_sink_receipt WHERE seq IN (3, 4, 9)",
    )
    refused(orders)

    accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1000, 1000)
    assert orders.ledger.audit("orders")["violations"] == []


def test_keep_goes_on_from_the_checkpoint_and_sends_nothing_again(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")
    refused(orders)

    assert "nothing is sent again" in accept(orders, resend=False)
    add_rows(orders.dsn, "orders", 1001, 1101)

    assert orders.run().records.delivered == 100
    assert counted(orders) == (1000, 1000)


def test_resend_to_a_target_that_was_made_again_sends_everything_since_it_is_empty(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE target")
    make_target(orders.dsn, "target")
    refused(orders)

    assert "from its beginning on" in accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1000, 1000)


def test_resend_does_not_guess_where_receipts_stand_and_the_target_holds_some_rows(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "CREATE TABLE made AS TABLE target", "DELETE FROM made WHERE id > 600", "DROP TABLE target")
    execute(orders.dsn, "ALTER TABLE made RENAME TO target")
    refused(orders)

    with pytest.raises(ConfigError, match=r"unknown which rows are lost.*--from"):
        accept(orders, resend=True)
    accept(orders, resend=True, start={"public.orders": 601})
    orders.run()

    assert counted(orders) == (1000, 1000)


def test_batches_that_nobody_can_tell_of_are_held_when_a_sink_without_bookkeeping_is_kept(orders: Replication) -> None:
    orders.changed(source={"start_from": "earliest"}).run()
    add_rows(orders.dsn, "orders", 1001, 1201)
    execute(orders.dsn, "ALTER TABLE target ADD CONSTRAINT no_1150 CHECK (id <> 1150)")
    failing = orders.changed(dead_letter_queue={"enabled": False})
    with pytest.raises(CkptError):
        failing.run()
    execute(orders.dsn, "DROP TABLE ckpt_sink_fence, ckpt_sink_receipt", "ALTER TABLE target DROP CONSTRAINT no_1150")
    refused(orders)

    assert "held" in accept(orders, resend=False)
    assert orders.run().route == ["hold"]
    assert counted(orders)[0] == counted(orders)[1]


def test_a_move_settles_with_the_old_sink_and_the_next_run_delivers_to_the_new_one(orders: Replication) -> None:
    orders.run()
    make_target(orders.dsn, "elsewhere")
    add_rows(orders.dsn, "orders", 1001, 1101)
    moved = orders.changed(sink={"table": "elsewhere"})
    refused(moved)

    setup = orders.setup()
    asked = ActionContext(orders.ledger, "orders", lambda: setup, "test:person", "another server")
    answer = change_sink(asked, accept_sink.make_move(setup))

    assert answer["before"]["sink"]["location"] != answer["after"]["sink"]["location"]
    assert moved.run().records.delivered == 100
    assert (counted(orders), counted(orders, "elsewhere")) == ((1000, 1000), (100, 100))
    assert "the declared sink is not the one that this pipeline delivered to" in refused(orders)


def test_a_sink_that_is_as_it_was_left_is_not_accepted_by_mistake(orders: Replication) -> None:
    orders.run()
    with pytest.raises(LedgerStateError, match="nothing to accept"):
        accept(orders, resend=True)


def test_a_dry_run_says_what_would_be_sent_again_and_changes_nothing(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")
    setup = orders.setup()
    asked = ActionContext(orders.ledger, "orders", lambda: setup, "test:person", "restored", dry_run=True)

    answer = change_sink(asked, accept_sink.make_acceptance(setup, resend=True))

    assert (answer["applied"], answer["next"]) == (False, "public.orders is sent again from 901 on")
    refused(orders)


def test_a_run_whose_sink_lost_commits_under_it_does_not_end_as_done(orders: Replication) -> None:
    run = acquire(orders.setup())
    with run:
        run.plan()
        run.execute(SessionEngine(orders.spark), rounds=True)
        execute(orders.dsn, "DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")
        with pytest.raises(SinkChangedError, match="1 receipts of batches that were delivered are missing"):
            run.finish()
        run.ledger.release(run.lease)

    accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1000, 1000)


def fill_anew(dsn: str) -> None:
    """Truncate the target and leave a row of somebody else's in it: only a snapshot of the target's own can tell."""
    first_row = "CREATE TABLE another AS SELECT * FROM target LIMIT 1"
    execute(dsn, first_row, "UPDATE another SET id = 7777", "TRUNCATE target", "INSERT INTO target TABLE another")


def test_a_target_that_was_truncated_and_filled_anew_after_a_failed_first_run_is_refused(orders: Replication) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CONSTRAINT no_950 CHECK (id <> 950)")
    with pytest.raises(CkptError, match="no_950"):
        orders.changed(dead_letter_queue={"enabled": False}).run()
    execute(orders.dsn, "ALTER TABLE target DROP CONSTRAINT no_950")
    assert scalar(orders.dsn, "SELECT count(*) FROM target") > 0
    fill_anew(orders.dsn)

    assert "was truncated and filled again" in refused(orders)


def fail(orders: Replication, error: Exception, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run, and fail when all is delivered and something has happened meanwhile."""
    with acquire(orders.setup()) as run:
        run.plan()
        run.execute(SessionEngine(orders.spark), rounds=True)
        meanwhile()
        raise error


@pytest.mark.parametrize("error", [SourceError("it is gone"), ZeroDivisionError("it is gone")])
def test_a_target_that_was_truncated_after_a_run_failed_behind_its_deliveries_is_refused(
    orders: Replication, error: Exception
) -> None:
    with pytest.raises(type(error), match="it is gone"):
        fail(orders, error)
    fill_anew(orders.dsn)

    assert "was truncated and filled again" in refused(orders)


def test_a_failed_run_keeps_its_error_when_its_sink_has_changed_too_and_the_next_run_is_refused(
    orders: Replication, caplog: pytest.LogCaptureFixture
) -> None:
    loss = ("DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")

    with pytest.raises(SourceError, match="it is gone"):
        fail(orders, SourceError("it is gone"), lambda: execute(orders.dsn, *loss))

    assert "1 receipts of batches that were delivered are missing" in caplog.text
    assert "1 receipts of batches that were delivered are missing" in refused(orders)


def test_a_failed_run_whose_sink_does_not_answer_ends_soon_with_its_own_error(
    orders: Replication, caplog: pytest.LogCaptureFixture
) -> None:
    moments = []
    blocker = psycopg2.connect(orders.dsn)

    def block() -> None:
        blocker.cursor().execute("LOCK TABLE target IN ACCESS EXCLUSIVE MODE")
        moments.append(time.monotonic())

    with closing(blocker):
        with pytest.raises(SourceError, match="it is gone"):
            fail(orders, SourceError("it is gone"), block)
        assert time.monotonic() - moments[0] < 15
        assert "did not answer" in caplog.text
        assert not orders.ledger.status("orders")["lease"]["held"]

    assert orders.run().records.delivered == 0


def test_a_failed_run_whose_sink_cannot_be_reached_any_more_ends_with_its_own_error(
    orders: Replication, caplog: pytest.LogCaptureFixture
) -> None:
    def lose() -> None:
        orders.dsn = orders.dsn.rpartition("/")[0] + "/nowhere"

    with pytest.raises(SourceError, match="it is gone"):
        fail(orders, SourceError("it is gone"), lose)

    assert "could not be checked" in caplog.text
    assert not orders.ledger.status("orders")["lease"]["held"]


def test_a_truncated_sink_stays_refused_when_accepting_it_died_after_the_fence(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "TRUNCATE target")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders.ledger, "act_under_lease", die)
        with pytest.raises(KeyboardInterrupt):
            accept(orders, resend=True)

    assert "a user began to accept it" in refused(orders)
    accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1000, 1000)
    assert orders.run().records.delivered == 0


def test_a_position_beyond_the_checkpoint_is_refused_before_a_truncated_sink_is_fenced(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "TRUNCATE target")
    epoch = scalar(orders.dsn, "SELECT max(epoch) FROM ckpt_sink_fence")

    with pytest.raises(LedgerStateError, match=r"5,000 lies beyond the checkpoint of partition public\.orders"):
        accept(orders, resend=True, start={"public.orders": 5000})

    assert scalar(orders.dsn, "SELECT max(epoch) FROM ckpt_sink_fence") == epoch
    assert "was truncated" in refused(orders)


def test_an_act_that_does_not_fit_is_refused_before_a_truncated_sink_is_fenced(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "TRUNCATE target")
    action = Action(ActionKind.KEEP_SINK, batches=(BatchKey(1, "public.orders", 9),))

    with pytest.raises(LedgerStateError):
        accept_sink.apply_sink_change(orders.setup(), action, actor="test:person", reason="restored")

    told = refused(orders)
    assert "was truncated" in told
    assert "did not finish" not in told


def test_a_resend_that_is_not_what_was_shown_is_refused_and_so_are_runs(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")
    shown = accept_sink.make_acceptance(orders.setup(), resend=True)
    execute(orders.dsn, "DELETE FROM target WHERE id > 800", "DELETE FROM ckpt_sink_receipt WHERE seq = 8")

    with pytest.raises(LedgerStateError, match="have changed since they were determined"):
        accept_sink.apply_sink_change(orders.setup(), shown, actor="test:person", reason="restored")
    refused(orders)
    accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1000, 1000)


def test_resend_sends_a_batch_again_that_was_not_settled_when_the_target_was_truncated(orders: Replication) -> None:
    orders.run()
    leave_unsettled(orders, 1001, 1101)
    execute(orders.dsn, "TRUNCATE target")
    refused(orders)

    accept(orders, resend=True)
    orders.run()

    assert counted(orders) == (1100, 1100)


def test_keep_does_not_hold_a_batch_whose_receipt_stands(orders: Replication) -> None:
    orders.run()
    leave_unsettled(orders, 1001, 1101)
    execute(
        orders.dsn, "DELETE FROM target WHERE id BETWEEN 901 AND 1000", "DELETE FROM ckpt_sink_receipt WHERE seq = 9"
    )
    refused(orders)

    assert "held" not in accept(orders, resend=False)
    assert orders.run().route == ["done"]
    assert counted(orders) == (1000, 1000)
