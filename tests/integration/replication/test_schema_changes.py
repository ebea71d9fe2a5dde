"""Changes of a source's columns between and during runs reach the target; rows have the columns of their version."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType, FencedError, SourceError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.engine_protocol import Check, WaveLostError
from airflow_provider_ckpt.replication.run.replicate import replicate
from tests.integration.replication.schema_driver import (
    COLUMNS,
    EVOLVE,
    differences,
    insert,
    plan_only,
    target_columns,
    versions,
)
from tests.services.replication import Replication, connection_to
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AlteringEngine(SessionEngine):
    """An engine before whose first wave the source's columns change.

    :param statements: the statements that change them
    """

    def __init__(self, spark: SparkSession, dsn: str, *statements: str) -> None:
        super().__init__(spark)
        self._dsn, self._statements = dsn, statements

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run the statements once, then the wave."""
        if self._statements:
            execute(self._dsn, *self._statements)
        self._statements = ()
        return super().run(wave, check)


class LosingEngine(SessionEngine):
    """An engine that loses its wave while the lane waits for a lock in the sink; then the source's columns change.

    :param statements: the statements that change them
    """

    def __init__(self, spark: SparkSession, dsn: str, *statements: str) -> None:
        super().__init__(spark)
        self._dsn, self._statements = dsn, statements
        self._lock = psycopg2.connect(dsn)
        self._lanes = Thread()

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Begin the wave, and report it as lost."""
        self._lock.cursor().execute("LOCK TABLE ckpt_sink_receipt IN SHARE MODE")
        self._lanes = Thread(target=super().run, args=(wave, check))
        self._lanes.start()
        while not scalar(self._dsn, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
            sleep(0.05)
        execute(self._dsn, *self._statements)
        raise WaveLostError(ErrorInfo(ErrorType.PROCESSING, "the executor is gone"))

    def kill(self) -> None:
        """Do nothing: Spark does not reach the lane any more."""

    def release(self) -> None:
        """Release the lock, and wait until the lane has ended."""
        self._lock.close()
        self._lanes.join(60)


def test_every_change_that_the_policy_allows_reaches_the_target_and_splits_the_rows_at_its_position(
    items: Replication,
) -> None:
    insert(items, 1, 31)
    assert items.run().records.delivered == 30
    execute(
        items.dsn,
        "ALTER TABLE items ALTER id TYPE bigint, ALTER name TYPE text, ALTER price TYPE numeric(12, 4)",
        "ALTER TABLE items ALTER day TYPE timestamp, ALTER name DROP NOT NULL",
        "ALTER TABLE items ADD COLUMN note text NOT NULL DEFAULT ''",
        "ALTER TABLE items RENAME size TO amount",
    )
    insert(items, 31, 61, "id, name, amount, price, day, note",
           "i + 5000000000, repeat('long', 9), i, 12345678.1234, timestamp '2024-01-01 10:00', 'n' || i")  # fmt: skip

    assert items.run().records.delivered == 30

    assert differences(items, "id, name, amount, price, day, note", "id > 30") == []
    assert differences(items, "id, name, amount, price, day", "id <= 30") == []
    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE id <= 30 AND note IS NULL") == 30
    assert scalar(items.dsn, "SELECT count(*) FROM items_target") == 60
    assert target_columns(items) == {
        "id": "bigint", "name": "text", "amount": "integer", "price": "numeric(12,4)",
        "day": "timestamp without time zone", "note": "text",
    }  # fmt: skip
    execute(items.dsn, "ALTER TABLE items DROP COLUMN name")
    insert(items, 61, 71, "id, note", "i + 5000000000, 'last'")

    assert items.run().records.delivered == 10

    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE name IS NULL AND note = 'last'") == 10
    assert [(found.number, found.position) for found in versions(items)] == [
        (1, -(2**63)), (2, 31), (3, 5_000_000_061)
    ]  # fmt: skip
    events = [event for event in items.ledger.events("orders") if event["kind"] == "schema_changed"]
    assert [event["detail"]["decision"] for event in events][2] == [
        "column name (text) was dropped: rows have null for it from here on"
    ]
    assert [column[0] for column in events[1]["detail"]["before"]] == ["id", "name", "size", "price", "day"]


def test_a_new_column_waits_for_planned_batches_and_these_are_read_without_a_dropped_one(items: Replication) -> None:
    insert(items, 1, 31)
    plan_only(items)
    execute(items.dsn, "ALTER TABLE items ADD COLUMN note text DEFAULT 'new', DROP COLUMN name")
    insert(items, 31, 51, "id, note", "i, 'later'")

    items.run()

    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE id <= 30 AND note IS NULL AND name IS NULL") == 30
    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE id > 30 AND note = 'later'") == 20
    assert [(v.number, v.position, len(v.replanned)) for v in versions(items)] == [
        (1, -(2**63), 0), (2, 31, 3), (3, 31, 0)
    ]  # fmt: skip
    separated = """
        SELECT bool_and((r.range_start < 31) = (r.at < s.at)) FROM ckpt_sink_receipt r, ckpt_sink_replay s
        WHERE s.partition = 'schema:3:public.items'
    """
    assert scalar(items.dsn, separated) is True


def test_columns_that_change_while_a_run_reads_are_followed_in_the_same_run(items: Replication) -> None:
    insert(items, 1, 31)
    altered = "ALTER TABLE items ALTER size TYPE bigint, ALTER name TYPE text, DROP COLUMN day, ADD COLUMN note text"
    later = (
        "INSERT INTO items (id, name, size, note) SELECT i, 'n', 1::bigint << 40, 'x' FROM generate_series(31, 40) i"
    )

    replicate(items.setup(), AlteringEngine(items.spark, items.dsn, altered, later))
    items.run()

    assert differences(items, "id, name, size, price, note") == []
    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE day IS NULL") == 40
    assert [len(found.replanned) for found in versions(items)] == [0, 3, 0]


def test_a_crash_between_the_receipt_and_the_ledger_changes_the_target_once(
    items: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(items, 1, 11)
    items.run()
    execute(items.dsn, "ALTER TABLE items ADD COLUMN note text")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "record_schema_version", _fail)
        with pytest.raises(CkptError, match="the ledger is gone"):
            items.run()
    assert "note" in target_columns(items)
    execute(items.dsn, "ALTER TABLE items ADD COLUMN more text")
    insert(items, 11, 21, "id, name, note, more", "i, 'n', 'a', 'b'")

    items.run()

    assert differences(items, "id, name, note, more") == []
    assert [found.number for found in versions(items)] == [1, 2, 3]
    receipts = "SELECT array_agg(partition ORDER BY partition) FROM ckpt_sink_replay"
    assert scalar(items.dsn, receipts) == [f"schema:{number}:public.items" for number in (1, 2, 3)]


def exchangeable(items: Replication) -> None:
    """Add a column of the type of ``size`` to source and target, which are empty."""
    execute(items.dsn, *(f"ALTER TABLE {table} ADD width int" for table in ("items", "items_target")))


def test_columns_that_exchange_their_names_before_a_lane_reads_are_not_taken_for_each_other(
    items: Replication,
) -> None:
    exchangeable(items)
    insert(items, 1, 31, "id, name, size, width", "i, 'n', i, -i")
    exchange = ("size TO other", "width TO size", "other TO width")
    renamed = [f"ALTER TABLE items RENAME {each}" for each in exchange]

    with pytest.raises(SourceError, match="its values now belong to another column"):
        replicate(items.setup(), AlteringEngine(items.spark, items.dsn, *renamed))

    assert scalar(items.dsn, "SELECT count(*) FROM items_target") == 0


def test_a_column_that_is_renamed_takes_its_values_along_even_if_its_name_is_given_again(items: Replication) -> None:
    insert(items, 1, 11)
    items.run()
    insert(items, 11, 31)
    plan_only(items)
    execute(items.dsn, "ALTER TABLE items RENAME size TO amount", "ALTER TABLE items ADD size text")
    insert(items, 31, 41, "id, name, amount, size", "i, 'n', i, 'large'")

    items.run()

    assert differences(items, "id, amount, size") == []
    assert [(found.position, len(found.replanned)) for found in versions(items)] == [(-(2**63), 0), (31, 2), (31, 0)]


def test_a_column_that_appears_while_a_run_plans_is_read_with_the_rows_that_have_it(
    items: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(items, 1, 11)
    items.run()
    plan = PostgresSource.plan

    def altered_before(self: PostgresSource, request: PlanRequest) -> Plan:
        if "note" not in {column.name for column in self.columns()}:
            execute(items.dsn, "ALTER TABLE items ADD note text")
            insert(items, 11, 21, "id, name, note", "i, 'n', 'new'")
        return plan(self, request)

    monkeypatch.setattr(PostgresSource, "plan", altered_before)

    items.run()

    assert differences(items, "id, note", "id > 10") == []
    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE note = 'new'") == 10


def _fail(*_: object) -> None:
    raise CkptError("the ledger is gone")


def test_a_run_that_was_fenced_changes_nothing_and_a_version_is_applied_once(items: Replication) -> None:
    insert(items, 1, 11)
    summary = items.run()
    context = SinkContext(items.ledger.sink_id("orders"), "orders")
    sink = PostgresSink(items.pipeline, connection_to(items.dsn), context)
    [first] = versions(items)
    second = SchemaVersion(2, first.partition, 1, 11, first.columns)
    steps = [TargetStep(StepKind.ADD, "note", "text")]

    with pytest.raises(FencedError):
        sink.apply_schema_version(summary.epoch - 1, second, steps)
    assert "note" not in target_columns(items)
    sink.apply_schema_version(summary.epoch, second, steps)
    with pytest.raises(CkptError, match="schema version 2 has a receipt"):
        sink.apply_schema_version(summary.epoch, second, [TargetStep(StepKind.ADD, "other", "text")])

    sink.close()
    assert list(target_columns(items))[-1] == "note"


def test_a_lane_of_a_lost_wave_that_was_sent_at_most_once_does_not_write_into_columns_of_another_meaning(
    items: Replication,
) -> None:
    once = items.changed(delivery="at_most_once", transform={"where": "id > 0"})
    insert(items, 1, 11)
    once.run()
    insert(items, 11, 21)
    engine = LosingEngine(
        items.spark, items.dsn, "ALTER TABLE items RENAME size TO amount", "ALTER TABLE items ADD size int"
    )

    with pytest.raises(SourceError, match="receipts are missing for 1 of the batches"):
        replicate(once.setup(), engine)
    engine.release()

    assert scalar(items.dsn, "SELECT count(*) FROM items_target") == 20
    once.run()

    assert differences(items, "id, amount, size") == []
    assert [found.number for found in versions(items)] == [1, 2]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ADD COLUMN note text", r"column note \(text\) is new, and schema.new_column is freeze"),
        ("ALTER size TYPE bigint", r"column size \(integer\) has type bigint now, and schema.wider_type is freeze"),
        ("ALTER size TYPE text", "the new type does not have all values of the old type"),
        ("DROP COLUMN size", r"column size \(integer\) was dropped, and schema.dropped_column is freeze"),
        ("RENAME size TO amount", r"was renamed to amount, and schema.renamed_column is freeze"),
    ],
)
def test_without_a_policy_a_change_ends_the_run_before_it_plans(
    items: Replication, statement: str, reason: str
) -> None:
    frozen = items.changed(schema=dict.fromkeys(EVOLVE, "freeze"))
    insert(items, 1, 11)
    frozen.run()
    before = target_columns(items)
    execute(items.dsn, f"ALTER TABLE items {statement}")
    insert(items, 11, 21, "id, name", "i, 'n'")

    with pytest.raises(SourceError, match=reason):
        frozen.run()

    assert (target_columns(items), scalar(items.dsn, "SELECT count(*) FROM items_target")) == (before, 10)


def test_a_discarded_column_is_not_read_and_the_policy_can_be_loosened_later(items: Replication) -> None:
    discarding = items.changed(schema={"new_column": "discard"})
    insert(items, 1, 11)
    discarding.run()
    execute(items.dsn, "ALTER TABLE items ADD COLUMN note text")
    insert(items, 11, 21, "id, name, note", "i, 'n', 'a'")

    discarding.run()

    assert "note" not in target_columns(items)
    assert differences(items, COLUMNS) == []
    execute(items.dsn, "ALTER TABLE items ADD COLUMN more text")
    insert(items, 21, 31, "id, name, more", "i, 'n', 'b'")

    items.run()

    assert differences(items, f"{COLUMNS}, more") == []


def test_with_select_only_columns_that_it_uses_matter(items: Replication) -> None:
    chosen = items.changed(schema={}, transform={"select": {"id": "id", "name": "upper(name)"}})
    chosen = chosen.changed(schema=dict.fromkeys(EVOLVE, "freeze"))
    insert(items, 1, 11)
    chosen.run()
    execute(items.dsn, "ALTER TABLE items ADD COLUMN note text, DROP COLUMN size, ALTER price TYPE text")
    insert(items, 11, 21, "id, name", "i, 'n'")

    assert chosen.run().records.delivered == 10

    execute(items.dsn, "ALTER TABLE items ALTER name TYPE text")
    with pytest.raises(SourceError, match=r"column name .* has type text now; the transform uses it"):
        chosen.run()
