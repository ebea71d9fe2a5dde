"""Late rows of a PostgreSQL source: a run reports them, ``recover`` finds them, and they are read once."""

from __future__ import annotations

from time import sleep
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.operators._markdown import unsettled_sections
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from airflow_provider_ckpt.replication.actions.proposals import ActionRequest, propose
from airflow_provider_ckpt.replication.actions.recover import recover
from tests.services.replication import Replication
from tests.services.tables import add_rows, execute, scalar

NOBODY_MISSED = "SELECT NOT EXISTS (TABLE orders EXCEPT ALL TABLE target)"
NOBODY_TWICE = "SELECT NOT EXISTS (SELECT FROM target GROUP BY id HAVING count(*) > 1)"


@pytest.fixture
def holey(orders: Replication) -> Replication:
    """Every third order was replicated, and ``recover`` looks at once."""
    execute(orders.dsn, "DELETE FROM orders WHERE id % 3 <> 0")
    settled = orders.changed(recovery={"settle_lag": "0s"})
    settled.run()
    return settled


def found(orders: Replication, *, dry_run: bool = False) -> dict[str, Any]:
    return recover(orders.setup(), dry_run=dry_run, actor="ann", reason="test")


def complete(orders: Replication) -> None:
    """Every order is in the target once, and nothing is missing any more."""
    assert scalar(orders.dsn, NOBODY_MISSED)
    assert scalar(orders.dsn, NOBODY_TWICE)
    assert found(orders, dry_run=True)["missing"] == []
    assert orders.ledger.audit("orders")["violations"] == []


class TestRecovery:
    def test_rows_that_came_late_between_ids_that_were_read_are_delivered_once(self, holey: Replication) -> None:
        for ids in ((100, 102), (401, 402), (998, 999)):
            add_rows(holey.dsn, "orders", *ids)
        assert holey.run().records == Counts()

        listed = found(holey)
        summary = holey.run()

        assert [item["reason"] for item in listed["missing"]] == ["late"] * 3
        assert [span for item in listed["missing"] for span in item["late"]] == [[100, 102], [401, 402], [998, 999]]
        assert listed["left"] == []
        assert summary.records == Counts(4, 4)
        complete(holey)

    def test_one_that_came_while_another_went_away_is_found_though_the_count_is_the_same(
        self, holey: Replication
    ) -> None:
        execute(holey.dsn, "DELETE FROM orders WHERE id IN (303, 306, 600)")
        add_rows(holey.dsn, "orders", 301, 303)

        listed = found(holey)
        holey.run()

        assert [item["late"] for item in listed["missing"]] == [[[301, 303]]]
        assert listed["missing"][0]["read"] == 100
        complete(holey)

    def test_rows_that_only_went_away_are_no_matter(self, holey: Replication) -> None:
        execute(holey.dsn, "DELETE FROM orders WHERE id BETWEEN 200 AND 500")

        assert found(holey)["missing"] == []

    def test_what_came_late_is_found_again_and_again_and_never_delivered_twice(self, holey: Replication) -> None:
        for ids in ((500, 501), (502, 503), (505, 506), (508, 509)):
            add_rows(holey.dsn, "orders", *ids)
            found(holey)
            holey.run()
            complete(holey)

    def test_asking_twice_before_a_run_delivers_once(self, holey: Replication) -> None:
        add_rows(holey.dsn, "orders", 100, 102)

        found(holey)
        again = found(holey)
        holey.run()

        assert again["missing"] == []
        complete(holey)

    def test_a_row_at_a_value_that_was_read_is_listed_and_not_read_again(self, orders: Replication) -> None:
        execute(
            orders.dsn,
            "CREATE TABLE visits (at int NOT NULL, who text)",
            "INSERT INTO visits SELECT i / 2 * 2, 'v' || i FROM generate_series(10, 49) AS i",
            "CREATE TABLE seen (at int, who text)",
        )
        visits = orders.changed(
            source={"table": "visits", "cursor": "at"}, sink={"table": "seen"}, recovery={"settle_lag": "0s"}
        )
        visits.run()
        execute(orders.dsn, "INSERT INTO visits VALUES (20, 'shared'), (21, 'own'), (21, 'twin')")

        listed = found(visits)
        visits.run()

        assert [(item["late"], item["shared"]) for item in listed["missing"]] == [([[21, 22]], [20])]
        assert [item["shared"] for item in listed["left"]] == [[20]]
        missed = "SELECT who FROM visits EXCEPT ALL SELECT who FROM seen"
        assert execute(orders.dsn, missed) == [("shared",)]
        assert scalar(orders.dsn, "SELECT count(*) = count(DISTINCT who) FROM seen")

    def test_a_young_range_is_left_out_until_it_has_settled(self, orders: Replication) -> None:
        execute(orders.dsn, "DELETE FROM orders WHERE id % 3 <> 0")
        orders.changed(recovery={"settle_lag": "1h"}).run()
        add_rows(orders.dsn, "orders", 100, 102)

        assert found(orders.changed(recovery={"settle_lag": "1h"}))["missing"] == []
        assert len(found(orders.changed(recovery={"settle_lag": "0s"}))["missing"]) == 1

    def test_a_time_cursor_is_told_apart_as_well(self, orders: Replication) -> None:
        execute(orders.dsn, "DELETE FROM orders WHERE id BETWEEN 300 AND 310")
        by_time = orders.changed(source={"cursor": "created_at"}, recovery={"settle_lag": "0s"})
        by_time.run()
        add_rows(orders.dsn, "orders", 303, 306)

        listed = found(by_time)
        by_time.run()

        assert [len(item["late"]) for item in listed["missing"]] == [1]
        complete(by_time)

    def test_receipts_that_a_crash_left_unsettled_tell_it_too(self, holey: Replication) -> None:
        forget = "UPDATE ckpt_sink_receipt SET positions = NULL WHERE range_start < 300"
        execute(holey.dsn, forget)
        add_rows(holey.dsn, "orders", 100, 102)
        add_rows(holey.dsn, "orders", 700, 701)

        listed = found(holey)

        assert [(item["late"], item["shown"] - item["read"]) for item in listed["missing"]] == [
            ([], 2),
            ([[700, 701]], 1),
        ]
        assert [item["late"] for item in listed["left"]] == [[]]

    def test_what_a_replayed_range_read_once_more_is_not_found_again(self, holey: Replication) -> None:
        add_rows(holey.dsn, "orders", 100, 102)
        action = Action(ActionKind.REPLAY, ranges=(("public.orders", Range(90, 150)),))
        apply_fenced_or_store(holey.setup(), action, actor="ann", reason="test")
        holey.run()

        assert scalar(holey.dsn, NOBODY_MISSED)
        assert [item["late"] for item in found(holey, dry_run=True)["missing"]] == []


class TestTold:
    @pytest.fixture
    def numbered(self, orders: Replication) -> Replication:
        """Orders that a sequence numbers, replicated."""
        execute(
            orders.dsn,
            "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY",
            "SELECT setval(pg_get_serial_sequence('orders', 'id'), 1000)",
        )
        settled = orders.changed(recovery={"settle_lag": "0s"})
        settled.run()
        return settled

    def more(self, orders: Replication, rows: int) -> None:
        columns = "customer, amount, created_at, status, note"
        execute(
            orders.dsn,
            f"INSERT INTO orders ({columns}) SELECT i, i, now(), 'new', 'n' FROM generate_series(1, {rows}) AS i",
        )

    def test_rows_below_one_far_ahead_are_told_and_recovered(self, orders: Replication) -> None:
        execute(orders.dsn, "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START 1001)")
        add_rows(orders.dsn, "orders", 1_000_000, 1_000_001)
        settled = orders.changed(recovery={"settle_lag": "0s"})
        self.more(settled, 1)
        settled.run()
        self.more(settled, 50)

        for _ in range(2):
            with pytest.raises(SourceError, match="50 rows came below it") as told:
                settled.run()
        assert "airflow ckpt recover orders" in str(told.value)
        assert found(settled, dry_run=True)["missing"][0]["late"] == [[1002, 1052]]
        with pytest.raises(SourceError, match="50 rows"):
            settled.run()
        found(settled)
        self.more(settled, 2)
        with pytest.raises(SourceError, match="2 rows came below it"):
            settled.run()
        found(settled)
        assert settled.run().records == Counts(52, 52)
        complete(settled)
        self.more(settled, 3)
        with pytest.raises(SourceError, match="3 rows came below it"):
            settled.run()

    def test_a_table_that_was_truncated_with_its_identity_is_told_and_rewound(self, numbered: Replication) -> None:
        execute(numbered.dsn, "TRUNCATE orders RESTART IDENTITY")
        self.more(numbered, 20)

        with pytest.raises(SourceError, match="airflow ckpt rewind orders --to-position N"):
            numbered.run()
        execute(numbered.dsn, "DELETE FROM target")
        rewind = Action(ActionKind.REWIND, positions={"public.orders": 1})
        apply_fenced_or_store(numbered.setup(), rewind, actor="ann", reason="test")

        assert numbered.run().records == Counts(20, 20)
        complete(numbered)

    def stays(self, orders: Replication, alarm: str, answer: dict[str, Any], reason: str) -> None:
        """The answer says why the alarm stays and what ends it, and the next run fails as before."""
        assert [reason in item["reason"] for item in answer["alarms"]] == [True]
        assert "airflow ckpt rewind orders --to-position N" in answer["alarms"][0]["ended_by"]
        with pytest.raises(SourceError, match=alarm):
            orders.run()

    def rewound(self, orders: Replication) -> None:
        """A rewind ends the alarm, and every row is delivered."""
        execute(orders.dsn, "DELETE FROM target")
        action = Action(ActionKind.REWIND, positions={"public.orders": -(2**63)})
        apply_fenced_or_store(orders.setup(), action, actor="ann", reason="test")
        orders.run()
        complete(orders)

    def test_a_sequence_that_went_back_is_told_on_until_it_is_raised(self, numbered: Replication) -> None:
        execute(numbered.dsn, "SELECT setval(pg_get_serial_sequence('orders', 'id'), 900)")

        answer = found(numbered)

        assert (answer["missing"], answer["left"], answer["applied"]) == ([], [], False)
        self.stays(numbered, "went back from 1000 to 900", answer, "positions were assigned again")
        execute(numbered.dsn, "SELECT setval(pg_get_serial_sequence('orders', 'id'), 1000)")
        assert numbered.run().records == Counts()

    def behind(self, orders: Replication, **recovery: str) -> Replication:
        """A row far ahead was delivered, and 50 came below it just now."""
        execute(orders.dsn, "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START 1001)")
        add_rows(orders.dsn, "orders", 1_000_000, 1_000_001)
        pipeline = orders.changed(recovery=recovery)
        self.more(pipeline, 1)
        pipeline.run()
        self.more(pipeline, 50)
        return pipeline

    def test_no_receipt_is_too_young_to_be_compared_while_there_is_an_alarm(self, orders: Replication) -> None:
        young = self.behind(orders, settle_lag="1h")
        with pytest.raises(SourceError, match="50 rows came below it"):
            young.run()

        answer = found(young)

        assert (answer["left"], answer["alarms"]) == ([], [])
        assert young.run().records == Counts(50, 50)
        complete(young)

    def test_rows_below_the_low_watermark_keep_the_alarm(self, numbered: Replication) -> None:
        execute(
            numbered.dsn,
            "CREATE TABLE old (LIKE orders)",
            "INSERT INTO old SELECT id - 5000, customer, amount, created_at, status, note FROM orders WHERE id <= 20",
            "ALTER TABLE old INHERIT orders",
        )
        expired = numbered.changed(recovery={"settle_lag": "0s", "window": "1s"})
        sleep(1.2)

        answer = found(expired)

        assert (answer["missing"], answer["left"], answer["applied"]) == ([], [], False)
        self.stays(expired, "old was added to it", answer, "below the low watermark")
        self.rewound(numbered)

    def test_rows_at_the_same_values_as_others_before_them_keep_the_alarm(self, numbered: Replication) -> None:
        execute(numbered.dsn, "TRUNCATE orders RESTART IDENTITY")
        self.more(numbered, 1000)

        answer = found(numbered)

        assert (answer["missing"], answer["left"], answer["applied"]) == ([], [], False)
        assert {item["reason"] for item in answer["alarms"]} == {
            "positions were assigned again, or there are too many new rows to compare"
        }
        with pytest.raises(SourceError, match="restarted or altered"):
            numbered.run()
        self.rewound(numbered)

    def test_rows_that_took_the_place_of_others_behind_a_sequence_keep_the_alarm(self, orders: Replication) -> None:
        execute(orders.dsn, "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START 1001)")
        add_rows(orders.dsn, "orders", 1003, 1005)
        add_rows(orders.dsn, "orders", 1_000_000, 1_000_001)
        behind = orders.changed(recovery={"settle_lag": "0s"})
        self.more(behind, 1)
        behind.run()
        execute(behind.dsn, "DELETE FROM orders WHERE id IN (1003, 1004)")
        self.more(behind, 5)

        answer = found(behind)

        assert [item["late"] for item in answer["missing"]] == [[[1002, 1003], [1005, 1007]]]
        assert answer["applied"]
        self.stays(behind, "5 rows came below it", answer, "rows that were read before")

    def test_what_is_left_keeps_the_alarm(self, orders: Replication) -> None:
        unpacked = self.behind(orders, settle_lag="0s")
        execute(unpacked.dsn, "UPDATE ckpt_sink_receipt SET positions = NULL")

        answer = found(unpacked)

        assert [item["late"] for item in answer["left"]] == [[]]
        assert not answer["applied"]
        self.stays(unpacked, "50 rows came below it", answer, "this does not read the rows")
        self.rewound(unpacked)

    def test_an_upsert_sink_is_not_rewound_where_that_would_end_the_alarm_too_early(self, orders: Replication) -> None:
        execute(orders.dsn, "ALTER TABLE target ADD PRIMARY KEY (id)")
        upsert = orders.changed(sink={"mode": "upsert", "key": ["id"]}, recovery={"settle_lag": "0s"})
        execute(
            upsert.dsn,
            "DELETE FROM orders WHERE id = 500",
            "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY",
            "SELECT setval(pg_get_serial_sequence('orders', 'id'), 1000)",
        )
        upsert.run()
        execute(upsert.dsn, "TRUNCATE orders RESTART IDENTITY")
        self.more(upsert, 1000)

        answer = found(upsert)

        assert [item["late"] for item in answer["left"]] == [[[500, 501]]]
        assert (answer["rewinds_to"], answer["applied"]) == ({}, False)
        with pytest.raises(SourceError, match="restarted or altered"):
            upsert.run()

    def test_a_person_who_knows_better_ends_the_alarm_by_one_run(self, numbered: Replication) -> None:
        execute(numbered.dsn, "TRUNCATE orders RESTART IDENTITY")
        with pytest.raises(SourceError, match="went back from 1000"):
            numbered.run()

        numbered.changed(source={"late_rows": "recover"}).run()

        assert numbered.run().records == Counts()

    def test_a_preview_shows_what_is_left_and_which_alarms_stay(self, orders: Replication) -> None:
        unpacked = self.behind(orders, settle_lag="0s")
        execute(unpacked.dsn, "UPDATE ckpt_sink_receipt SET positions = NULL")

        proposed = propose(
            ActionContext(unpacked.ledger, "orders", unpacked.setup, "ann"), ActionRequest(ActionKind.RECOVER)
        )
        body = "\n\n".join(unsettled_sections(proposed.open))

        assert proposed.action is None
        assert "not read, or not completely" in body
        assert "The next run **still fails**" in body
        assert "50 rows came below it" in body
        assert "airflow ckpt rewind orders" in body.replace("\\", "")


class TestRowsThatMoved:
    """Rows of a default partition go into partitions of their own, as ``pg_partman``'s partition_data does it."""

    @pytest.fixture
    def partitioned(self, orders: Replication) -> Replication:
        """Orders in a default partition, replicated by batches of 100."""
        execute(
            orders.dsn,
            "ALTER TABLE orders RENAME TO old",
            "CREATE TABLE orders (LIKE old) PARTITION BY RANGE (id)",
            "ALTER TABLE orders ATTACH PARTITION old DEFAULT",
        )
        settled = orders.changed(recovery={"settle_lag": "0s"})
        settled.run()
        return settled

    def move(self, orders: Replication, start: int, end: int, *more: str) -> None:
        """Move some rows into a partition of their own.

        :param more: what else happens to that before it is attached
        """
        span = f"id >= {start} AND id < {end}"
        execute(
            orders.dsn,
            f"CREATE TABLE part_{start} (LIKE orders)",
            f"WITH moved AS (DELETE FROM old WHERE {span} RETURNING *) INSERT INTO part_{start} SELECT * FROM moved",
            *more,
            f"ALTER TABLE orders ATTACH PARTITION part_{start} FOR VALUES FROM ({start}) TO ({end})",
        )

    def test_they_are_not_told_since_each_has_a_receipt(self, partitioned: Replication) -> None:
        self.move(partitioned, 201, 355)
        self.move(partitioned, 500, 700, "DELETE FROM part_500 WHERE id % 5 = 0")
        add_rows(partitioned.dsn, "orders", 1001, 1011)

        assert partitioned.run().records == Counts(10, 10)
        assert partitioned.run().records == Counts()
        assert scalar(partitioned.dsn, NOBODY_MISSED)
        assert scalar(partitioned.dsn, NOBODY_TWICE)

    def test_rows_that_came_along_with_them_are_told_and_recovered(self, orders: Replication) -> None:
        execute(
            orders.dsn,
            "DELETE FROM orders WHERE id IN (600, 601, 640)",
            "ALTER TABLE orders RENAME TO old",
            "CREATE TABLE orders (LIKE old) PARTITION BY RANGE (id)",
            "ALTER TABLE orders ATTACH PARTITION old DEFAULT",
        )
        settled = orders.changed(recovery={"settle_lag": "0s"})
        settled.run()
        add_rows(settled.dsn, "old", 640, 641)
        self.move(settled, 500, 700)
        add_rows(settled.dsn, "part_500", 600, 602)

        with pytest.raises(SourceError, match="No receipt covers 2 ranges of these positions, the first at 600"):
            settled.run()
        listed = found(settled)

        assert [span for item in listed["missing"] for span in item["late"]] == [[600, 602], [640, 641]]
        assert listed["alarms"] == []
        assert settled.run().records == Counts(3, 3)
        complete(settled)

    def test_a_partition_in_the_place_of_another_is_told_though_its_positions_are_the_same(
        self, partitioned: Replication
    ) -> None:
        self.move(partitioned, 500, 700)
        partitioned.run()
        execute(
            partitioned.dsn,
            "CREATE TABLE corrected AS SELECT * FROM part_500",
            "UPDATE corrected SET amount = amount + 1",
            "ALTER TABLE orders DETACH PARTITION part_500",
            "ALTER TABLE corrected ALTER customer SET NOT NULL",
            *(
                f"ALTER TABLE corrected ALTER {name} SET NOT NULL"
                for name in ("amount", "created_at", "status", "note")
            ),
            "ALTER TABLE corrected ALTER id SET NOT NULL",
            "ALTER TABLE orders ATTACH PARTITION corrected FOR VALUES FROM (500) TO (700)",
        )

        with pytest.raises(SourceError, match="corrected was added to it, with rows below the checkpoint"):
            partitioned.run()

    def test_rows_that_were_only_changed_while_their_partition_was_detached_are_not_told(
        self, partitioned: Replication
    ) -> None:
        self.move(partitioned, 500, 700)
        partitioned.run()
        self.attach_again(partitioned, "UPDATE part_500 SET note = 'changed'", "DELETE FROM part_500 WHERE id = 510")
        add_rows(partitioned.dsn, "orders", 1001, 1011)

        assert partitioned.run().records == Counts(10, 10)

    def test_rows_that_a_partition_got_while_it_was_detached_are_told_and_recovered(self, orders: Replication) -> None:
        execute(
            orders.dsn,
            "DELETE FROM orders WHERE id IN (600, 601)",
            "ALTER TABLE orders RENAME TO old",
            "CREATE TABLE orders (LIKE old) PARTITION BY RANGE (id)",
            "ALTER TABLE orders ATTACH PARTITION old DEFAULT",
        )
        settled = orders.changed(recovery={"settle_lag": "0s"})
        self.move(settled, 500, 700)
        settled.run()
        execute(settled.dsn, "ALTER TABLE orders DETACH PARTITION part_500")
        add_rows(settled.dsn, "part_500", 600, 602)
        execute(settled.dsn, "ALTER TABLE orders ATTACH PARTITION part_500 FOR VALUES FROM (500) TO (700)")

        with pytest.raises(SourceError, match=r"part_500 was detached and attached again.* the first at 600"):
            settled.run()
        assert found(settled)["alarms"] == []

        assert settled.run().records == Counts(2, 2)
        complete(settled)

    def attach_again(self, orders: Replication, *meanwhile: str) -> None:
        """Detach a partition, do something to it, and attach it again."""
        execute(
            orders.dsn,
            "ALTER TABLE orders DETACH PARTITION part_500",
            *meanwhile,
            "ALTER TABLE orders ATTACH PARTITION part_500 FOR VALUES FROM (500) TO (700)",
        )

    def test_those_below_the_low_watermark_are_told(self, partitioned: Replication) -> None:
        expired = partitioned.changed(recovery={"settle_lag": "0s", "window": "1s"})
        sleep(1.2)
        self.move(partitioned, 500, 700)

        with pytest.raises(SourceError, match="part_500 was added to it"):
            expired.run()

    def test_those_of_which_no_positions_are_kept_are_told(self, partitioned: Replication) -> None:
        execute(partitioned.dsn, "UPDATE ckpt_sink_receipt SET positions = NULL WHERE range_start = 501")
        self.move(partitioned, 500, 700)

        with pytest.raises(SourceError, match="part_500 was added to it"):
            partitioned.run()
