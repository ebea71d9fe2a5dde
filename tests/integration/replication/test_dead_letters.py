"""Dead letters with real PostgreSQL and Spark: 50 bad rows are replayed once after the target was corrected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetterState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.replication.actions.adopt_other_ledger import adopt
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, make_action, read_contents
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced, apply_fenced_or_store
from airflow_provider_ckpt.replication.run.acquire import acquire
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000
BAD = list(range(7, ROWS, 20))
"""Ids of the 50 rows that the target refuses."""

ALL = Selection()


@pytest.fixture
def stock(spark: SparkSession, postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """1,000 rows of many types, of which the target's constraint refuses 50; batches of 100."""
    execute(
        postgres_database,
        "CREATE TABLE items (id bigint PRIMARY KEY, amount int, price numeric, code bytea, at timestamptz, day date)",
        f"""
        INSERT INTO items
        SELECT i, CASE WHEN i % 20 = 7 THEN -i ELSE i END, i / 8.0, decode('00ff', 'hex') || i::text::bytea,
            timestamptz '2024-01-01Z' + i * interval '1 ms', date '2024-01-01' + i
        FROM generate_series(1, {ROWS}) AS i
        """,
        "CREATE TABLE stock (id bigint, amount int CONSTRAINT enough CHECK (amount > 0), price numeric(9, 3),"
        " code bytea, at timestamptz, day date)",
    )
    with make_ledger(postgres_server) as ledger:
        replication = Replication(spark, ledger, postgres_database, orders_pipeline(source="items", target="stock"))
        yield replication.changed(commit_strategy={"commit_interval": 100})


def mend(stock: Replication) -> None:
    """Let the target take what it refused."""
    execute(stock.dsn, "ALTER TABLE stock DROP CONSTRAINT enough")


def replay(stock: Replication, selection: Selection = ALL) -> ActionResult:
    """Replay dead letters as ``airflow ckpt dlq replay`` does."""
    setup = stock.setup()
    return apply_fenced_or_store(
        setup, make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, selection), actor="ann", reason="mended"
    )


def states(stock: Replication) -> dict[str, int]:
    """Return the number of dead letters in each state."""
    counts: Counter[str] = Counter()
    for entry in stock.ledger.dead_letter_index("orders").entries:
        counts[entry.state.value] += entry.dead_letters.records
    return dict(counts)


def delivered_as_they_are(stock: Replication) -> list[int]:
    """Ids of the target's rows that are just as the source has them, with repetitions."""
    rows = execute(
        stock.dsn,
        "SELECT id FROM stock JOIN items USING (id, amount, code, at, day) WHERE stock.price = items.price ORDER BY id",
    )
    return [row[0] for row in rows]


def clean(stock: Replication) -> bool:
    """Return whether every invariant holds."""
    found = stock.ledger.audit("orders")
    assert found["violations"] == []
    return bool(found["ok"])


def test_fifty_bad_rows_are_mended_replayed_once_and_never_again(stock: Replication) -> None:
    assert stock.run().records == Counts(ROWS, ROWS - 50, 0, 50)
    mend(stock)

    result = replay(stock)
    again = stock.run()

    assert result.before["dead_letters"] == {"parked": 50}
    assert result.after["dead_letters"] == {"replaying": 50}
    assert again.records == Counts(50, 50, 0, 0)
    assert again.route == ["done"]
    assert delivered_as_they_are(stock) == list(range(1, ROWS + 1))
    assert states(stock) == {"replayed": 50}
    assert make_action(stock.setup(), ActionKind.REPLAY_DEAD_LETTERS, ALL).dead_letters == ()
    assert stock.run().records == Counts()
    assert clean(stock)


def test_a_replay_that_is_asked_for_twice_delivers_once(stock: Replication) -> None:
    stock.run()
    mend(stock)
    setup = stock.setup()
    action = make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, ALL)

    apply_fenced(setup, action, actor="ann", reason="mended")
    with pytest.raises(LedgerStateError, match="parked any more"):
        apply_fenced(stock.setup(), action, actor="ben", reason="mended, he says")
    stock.run()

    assert delivered_as_they_are(stock) == list(range(1, ROWS + 1))
    assert clean(stock)


def test_what_fails_again_is_parked_again_with_its_bytes_and_its_attempts(stock: Replication) -> None:
    stock.run()
    before = {
        kept.dead_letter.headers["x-ckpt-source-position"]: kept
        for _, kept in read_contents(stock.setup(), load_index(stock.setup()).entries)
    }

    for attempts in (1, 2):
        replay(stock)
        summary = stock.run()

        assert summary.records == Counts(50, 0, 0, 50)
        assert summary.route == ["dead_letters", "done"]
        parked = [e for e in load_index(stock.setup()).entries if e.state is DeadLetterState.PARKED_AGAIN]
        assert [(e.dead_letters.records, e.replays) for e in parked] == [(50, attempts)]
        found = {
            kept.dead_letter.headers["x-ckpt-source-position"]: kept for _, kept in read_contents(stock.setup(), parked)
        }
        assert found.keys() == before.keys()
        for position, kept in found.items():
            assert kept.dead_letter.value == before[position].dead_letter.value
            assert kept.dead_letter.error.sqlstate == "23514"
            assert kept.dead_letter.headers["x-ckpt-retry-attempts"] == str(attempts)
    mend(stock)
    replay(stock)

    assert stock.run().records == Counts(50, 50, 0, 0)
    assert delivered_as_they_are(stock) == list(range(1, ROWS + 1))
    assert states(stock) == {"replayed": 150}
    assert clean(stock)


def test_a_selection_by_batch_that_stops_takes_no_more(stock: Replication) -> None:
    stock.run()
    mend(stock)
    batches = frozenset({BatchKey(1, "public.items", 1), BatchKey(1, "public.items", 2)})

    replay(stock, Selection(batches=batches, stop_at=7))
    stock.run()

    assert states(stock) == {"replayed": 7, "parked": 43}
    assert [id_ for id_ in delivered_as_they_are(stock) if id_ in BAD] == [107, 127, 147, 167, 187, 207, 227]
    assert clean(stock)


def test_letters_of_records_that_a_rewind_reads_again_are_not_replayed(stock: Replication) -> None:
    stock.run()
    mend(stock)
    apply_fenced(
        stock.setup(), Action(ActionKind.REWIND, positions={"public.items": 501}), actor="ann", reason="mended"
    )
    stock.run()

    replay(stock)
    stock.run()

    counted = Counter(delivered_as_they_are(stock))
    assert {id_: times for id_, times in counted.items() if id_ in BAD} == dict.fromkeys(BAD, 1)
    assert states(stock) == {"replayed": 25, "parked": 25}
    assert clean(stock)


def test_a_replay_that_waits_and_a_rewind_do_not_both_deliver_its_letters(stock: Replication) -> None:
    stock.run()
    mend(stock)
    assert replay(stock).applied
    execute(stock.dsn, "DELETE FROM stock")

    taken = apply_fenced(
        stock.setup(), Action(ActionKind.REWIND, positions={"public.items": 1}), actor="ann", reason="mended"
    )
    stock.run()
    stock.run()

    assert scalar(stock.dsn, "SELECT count(*) FROM stock") == ROWS
    assert scalar(stock.dsn, "SELECT count(DISTINCT id) FROM stock") == ROWS
    assert len(taken.action.cancelled_replays) == 1
    assert clean(stock)


def test_letters_are_discarded_by_name_and_stay_in_the_sink(stock: Replication) -> None:
    stock.run()
    mend(stock)
    batch = frozenset({BatchKey(1, "public.items", 3)})
    action = make_action(stock.setup(), ActionKind.DISCARD_DEAD_LETTERS, Selection(batches=batch))

    result = stock.ledger.action("orders", action, actor="ann", reason="test orders")
    replay(stock)
    stock.run()

    assert result.after["dead_letters"] == {"discarded": 5}
    assert states(stock) == {"replayed": 45, "discarded": 5}
    assert scalar(stock.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 50
    events = [event for event in stock.ledger.events("orders") if event["kind"] == "discard_dead_letters"]
    assert [(event["actor"], event["detail"]["reason"]) for event in events] == [("ann", "test orders")]
    assert clean(stock)


def test_a_replay_goes_through_the_transform_as_it_now_stands(stock: Replication) -> None:
    columns = {name: name for name in ("id", "amount", "price", "code", "at", "day")}
    stock = stock.changed(transform={"select": columns})
    stock.run()
    replay(stock)

    mended = stock.changed(transform={"select": columns | {"amount": "abs(amount)"}, "where": "id <> 7"})

    assert mended.run().records == Counts(50, 49, 1, 0)
    found = execute(stock.dsn, "SELECT id, amount FROM stock WHERE id = ANY(%s) ORDER BY id", parameters=[BAD])
    assert found == [(id_, id_) for id_ in BAD if id_ != 7]
    assert clean(stock)


def test_a_replay_never_replaces_a_row_that_may_be_newer(stock: Replication) -> None:
    execute(stock.dsn, "ALTER TABLE stock ADD PRIMARY KEY (id)")
    stock = stock.changed(sink={"mode": "upsert", "key": ["id"]})
    stock.run()
    mend(stock)
    execute(stock.dsn, "INSERT INTO stock (id, amount) VALUES (7, 700)")

    replay(stock)

    assert stock.run().records == Counts(50, 49, 0, 1)
    assert scalar(stock.dsn, "SELECT amount FROM stock WHERE id = 7") == 700
    (again,) = [
        kept for entry, kept in read_contents(stock.setup(), load_index(stock.setup()).entries) if entry.replays
    ]
    assert again.dead_letter.error.sqlstate == "23505"
    assert json.loads(again.dead_letter.value or b"")["amount"] == -7
    assert states(stock) == {"replayed": 50, "parked_again": 1}
    assert clean(stock)


def test_the_newest_of_two_parked_versions_of_a_row_is_delivered(stock: Replication) -> None:
    execute(stock.dsn, "ALTER TABLE stock ADD PRIMARY KEY (id)")
    execute(stock.dsn, "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD v bigint", "UPDATE items SET v = id")
    execute(stock.dsn, "INSERT INTO items (id, amount, v) VALUES (27, -2700, 2000)")
    columns = ["id", "amount", "price", "code", "at", "day"]
    stock = stock.changed(
        source={"cursor": "v"},
        sink={"mode": "upsert", "key": ["id"]},
        transform={"select": {name: name for name in columns}},
    )
    stock.run()
    mend(stock)

    replay(stock)
    stock.run()

    assert scalar(stock.dsn, "SELECT amount FROM stock WHERE id = 27") == -2700
    assert states(stock) == {"replayed": 51, "parked_again": 1}
    assert clean(stock)


def test_types_that_only_receipts_told_of_are_learned_from_the_sink(stock: Replication) -> None:
    stock.run()
    original = stock.ledger.dead_letter_index("orders").entries
    forgotten: dict[str, Any] = {"type": "unknown"}
    with stock.ledger._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ckpt_dead_letter SET error_type = 'unknown'")

    assert {entry.dead_letters.error_type for entry in stock.ledger.dead_letter_index("orders").entries} == set(
        forgotten.values()
    )
    assert load_index(stock.setup()).entries == original
    assert stock.ledger.dead_letter_index("orders").entries == original


def test_a_skipped_replay_leaves_its_letters_parked(stock: Replication) -> None:
    stock.run()
    replay(stock)
    (side,) = [name for name in stock.ledger.partitions("orders") if name.startswith("dlq:")]
    assert side == "dlq:2:public.items"
    assert stock.ledger.partitions("orders")[side].partition.limit == Range(0, 50).end

    with acquire(stock.setup()) as run:
        run.plan()
        run.finish()
    key = BatchKey(2, side, 0)
    stock.ledger.action("orders", Action(ActionKind.SKIP, (key,)), actor="ann", reason="not yet")

    assert states(stock) == {"parked": 50}
    mend(stock)
    replay(stock)
    assert stock.run().records == Counts(50, 50, 0, 0)
    assert clean(stock)


def test_the_receipts_of_a_replay_are_no_news_once_its_partition_was_collected(stock: Replication) -> None:
    stock.run()
    mend(stock)
    replay(stock)
    stock.run()
    (side,) = [name for name in stock.ledger.partitions("orders") if name.startswith("dlq:")]

    stock.ledger.garbage_collect("orders", keep=timedelta(0), actor="ann")

    assert side not in stock.ledger.partitions("orders")
    with acquire(stock.setup()) as run:
        assert list(run.receipts()) == []


def test_a_new_ledger_learns_from_the_sink_what_was_replayed(
    stock: Replication, postgres_server: PostgresServer
) -> None:
    stock.run()
    replay(stock, Selection(stop_at=30))
    stock.run()
    execute(stock.dsn, "DELETE FROM stock WHERE id < 0", "ALTER TABLE stock DROP CONSTRAINT enough")
    replay(stock, Selection(stop_at=12))
    stock.run()
    before = states(stock)
    with make_ledger(postgres_server) as fresh:
        lost = stock.ledger.id
        stock = Replication(stock.spark, fresh, stock.dsn, stock.document)
        adopt(stock.setup(), lost, actor="ann", reason="its disk is gone")

        assert stock.run().batches == 10 + 1 + 1
        load_index(stock.setup())

        assert states(stock) == before == {"replayed": 42, "parked_again": 18, "parked": 20}
        replay(stock)
        stock.run()
        assert delivered_as_they_are(stock) == list(range(1, ROWS + 1))
        assert states(stock) == {"replayed": 80}
        assert clean(stock)


def test_letters_and_their_range_are_not_both_sent_again_to_a_target_that_appends(stock: Replication) -> None:
    stock.run()
    mend(stock)
    replay(stock, Selection(stop_at=3))
    stock.run()
    again = Action(ActionKind.REPLAY, ranges=(("public.items", Range(1, 101)),))

    with pytest.raises(LedgerStateError, match="would deliver them twice"):
        apply_fenced_or_store(stock.setup(), again, actor="ann", reason="once more")
    stock.run()

    assert scalar(stock.dsn, "SELECT count(*) - count(DISTINCT id) FROM stock") == 0


def test_letters_beside_a_range_that_was_read_again_are_delivered_by_their_positions(stock: Replication) -> None:
    stock.run()
    replay(stock)
    stock.run()
    assert states(stock) == {"replayed": 50, "parked_again": 50}
    mend(stock)
    execute(stock.dsn, "DELETE FROM stock WHERE id <= 50")
    read_again(stock, 1, 51)
    stock.run()
    assert delivered_as_they_are(stock) == [*(i for i in range(1, ROWS + 1) if i % 20 != 7 or i < 51)]
    assert not make_action(stock.setup(), ActionKind.REPLAY_DEAD_LETTERS, ALL).dead_letters

    known = load_index(stock.setup()).entries
    positions = [
        kept.dead_letter.position
        for entry, kept in read_contents(stock.setup(), known)
        if not entry.dead_letters.key.is_replay
    ]
    assert sorted(positions) == BAD
    for position in positions:
        if position >= 51:
            read_again(stock, position, position + 1)
    stock.run()

    assert delivered_as_they_are(stock) == list(range(1, ROWS + 1))
    assert clean(stock)


def read_again(stock: Replication, start: int, end: int) -> None:
    """Do as `airflow ckpt replay range` does."""
    action = Action(ActionKind.REPLAY, ranges=(("public.items", Range(start, end)),))
    assert apply_fenced_or_store(stock.setup(), action, actor="ann", reason="mended").applied
