"""The postgres sink with a real server: the conformance suite, the fence as a barrier, and refusals of ``check()``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.fence import session_prefix
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.writer import PostgresWriter
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, FencedError, SinkError
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.testing.lane_writer import LaneWriter, none_refused
from airflow_provider_ckpt.testing.sink_conformance import RefusingSinkConformance
from airflow_provider_ckpt.testing.sink_harness import (
    LEDGER,
    Run,
    SinkHarness,
    StoredDeadLetter,
    content,
    ids,
    task,
)
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

LETTERS = """
    SELECT seq, position, key, value, error_type FROM ckpt_sink_dead_letter
    WHERE ledger = %s AND pipeline = %s ORDER BY position
"""


class TargetHarness(SinkHarness):
    """``public.target``, without a key, so that a duplicate would show."""

    refused = (1000,)

    def __init__(self, dsn: str, column: str = "bigint", **sink: Any) -> None:
        self.dsn = dsn
        self._sink = sink
        execute(dsn, f"CREATE TABLE target (id {column} CHECK (id < 1000))")

    def sink(self, context: SinkContext) -> Sink:
        return PostgresSink(pipeline(context.pipeline, sink=self._sink), connection(self.dsn), context)

    def writer(self, context: SinkContext) -> Writer:
        return PostgresWriter(pipeline(context.pipeline, sink=self._sink), connection(self.dsn), context)

    def target(self) -> list[int]:
        return [row[0] for row in execute(self.dsn, "SELECT id FROM target ORDER BY id")]

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        found = execute(self.dsn, LETTERS, parameters=[context.ledger, context.pipeline])
        return [
            StoredDeadLetter(seq, position, key and bytes(key), value and bytes(value), error)
            for seq, position, key, value, error in found
        ]


WAYS: dict[str, dict[str, Any]] = {
    "append": {"column": "bigint"},
    "append through a cast": {"column": "numeric(12, 1)"},
    "upsert": {"column": "int PRIMARY KEY", "mode": "upsert", "key": ["id"]},
}


class TestConformance(RefusingSinkConformance):
    @pytest.fixture(params=WAYS)
    def harness(self, request: pytest.FixtureRequest, postgres_database: str) -> SinkHarness:
        return TargetHarness(postgres_database, **WAYS[request.param])


@pytest.fixture
def harness(postgres_database: str) -> TargetHarness:
    return TargetHarness(postgres_database)


@contextmanager
def holding_the_fence(dsn: str, epoch: int) -> Iterator[Any]:
    """A session that looks like a lane's of an epoch, in a transaction that has passed the fence."""
    name = f"{session_prefix(SinkContext(LEDGER, 'orders'))}{epoch}"
    opened = psycopg2.connect(dsn, application_name=name)
    try:
        with opened.cursor() as cursor:
            cursor.execute("SELECT epoch FROM ckpt_sink_fence FOR SHARE")
        yield opened
    finally:
        opened.close()


class TestFence:
    def test_it_waits_for_a_transaction_of_an_older_epoch(self, harness: TargetHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over()
            with holding_the_fence(harness.dsn, 1) as lane:
                timer = threading.Timer(0.5, lane.commit)
                timer.start()
                started = time.monotonic()
                new.sink.fence(2)
                waited = time.monotonic() - started
                timer.join()

            assert waited > 0.4
            assert new.sink.claims().epoch == 2

    def test_it_ends_a_transaction_of_an_older_epoch_that_does_not_end_by_itself(self, harness: TargetHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over()
            with holding_the_fence(harness.dsn, 1) as zombie:
                with zombie.cursor() as cursor:
                    cursor.execute("INSERT INTO target VALUES (666)")
                new.sink.fence(2)

                with pytest.raises(psycopg2.OperationalError):
                    zombie.commit()
            assert harness.target() == []

    def test_it_leaves_other_sessions_alone(self, harness: TargetHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new, Run(harness, 1, pipeline="invoices") as other:
            old.take_over()
            other.take_over()
            other.send(task(0), content(0))
            with holding_the_fence(harness.dsn, 1):
                new.sink.fence(2)

            assert other.send(task(1), content(1)).outcome is AttemptOutcome.DELIVERED

    def test_a_lane_whose_session_was_ended_by_a_newer_run_learns_that_it_is_fenced(
        self, harness: TargetHarness
    ) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over().send(task(0), content(0))
            new.take_over()
            execute(
                harness.dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ckpt:%'"
                " AND application_name NOT LIKE 'ckpt-%'",
            )

            with pytest.raises(FencedError):
                old.send(task(1), content(1))

    def test_a_lane_in_the_middle_of_a_batch_cannot_commit_after_it(self, harness: TargetHarness) -> None:
        execute(
            harness.dsn,
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END'",
            "CREATE TRIGGER slow BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION slowly()",
        )
        raised: list[BaseException] = []

        def send() -> None:
            try:
                old.send(task(0), content(0))
            except FencedError as error:
                raised.append(error)

        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over()
            lane = threading.Thread(target=send)
            lane.start()
            time.sleep(0.5)
            new.sink.fence(2)
            receipts = new.receipts()
            lane.join()

            (error,) = raised
            assert isinstance(error, FencedError)
            assert (error.pipeline, error.batch) == ("orders", str(task(0).key))
            assert (receipts, new.receipts(), harness.target()) == ([], [], [])


class TestTwins:
    def test_two_lanes_with_the_same_batch_deliver_it_once(self, harness: TargetHarness) -> None:
        with Run(harness, 1) as one, Run(harness, 1) as two:
            one.take_over()
            outcomes = []
            lanes = [
                threading.Thread(target=lambda run=run: outcomes.append(run.send(task(0), content(0))))
                for run in (one, two)
            ]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()

            assert sorted(outcome.receipt_existed for outcome in outcomes) == [False, True]
            assert harness.target() == ids(0)


class TestBookkeeping:
    def test_it_is_created_once_by_many_at_the_same_time(self, harness: TargetHarness) -> None:
        failures: list[BaseException] = []

        def create() -> None:
            with closing(harness.sink(SinkContext(LEDGER, "orders"))) as sink:
                try:
                    sink.create_bookkeeping()
                except SinkError as error:
                    failures.append(error)

        threads = [threading.Thread(target=create) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []
        assert scalar(harness.dsn, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ckpt_sink_%'") == 4

    def test_it_stands_in_the_target_s_schema(self, postgres_database: str) -> None:
        schema = 'we"ird {0} %s'
        execute(
            postgres_database, 'CREATE SCHEMA "we""ird {0} %s"', 'CREATE TABLE "we""ird {0} %s"."My ""table" (id int)'
        )
        context = SinkContext(LEDGER, "orders", 1)
        declared = pipeline(sink={"table": '"we""ird {0} %s"."My ""table"'})
        with (
            closing(PostgresSink(declared, connection(postgres_database), context)) as sink,
            closing(PostgresWriter(declared, connection(postgres_database), context)) as writer,
        ):
            sink.check()
            sink.fence(1)
            outcome = LaneWriter(writer, none_refused).deliver(task(0), content(0, rejected=1))

            assert outcome.outcome is AttemptOutcome.DELIVERED
            assert [receipt.key.seq for receipt in sink.receipts({})] == [0]
            assert sink.target_rows() == 9
            assert len(list(sink.dead_letters([AttemptKey(task(0).key, 1, 1)]))) == 1
            sink.store_replay("dlq:2:p", Replay(()))
            assert sink.replays(["dlq:2:p"]) == {"dlq:2:p": Replay(())}
        found = execute(postgres_database, "SELECT schemaname FROM pg_tables WHERE tablename LIKE 'ckpt_sink_%'")
        assert found == [(schema,)] * 4

    def test_of_a_long_history_only_what_is_news_is_looked_at(self, harness: TargetHarness) -> None:
        looked_at = """
            SELECT sum(idx_tup_read)
                + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'ckpt_sink_receipt')
            FROM pg_stat_user_indexes WHERE relname = 'ckpt_sink_receipt'
        """
        with Run(harness, 1) as run:
            run.take_over().send(task(20_000), content(20_000))
            run.send(task(0, partition="new"), content(0))
            assert len(run.receipts({"main": KnownReceipts(1, -(2**63))})) == 2  # the least that a cursor can be
            execute(
                harness.dsn,
                """INSERT INTO ckpt_sink_receipt SELECT ledger, pipeline, generation, partition, i, i * 10, i * 10 + 10,
                   verdict, epoch, attempt, read, delivered, filtered, dead_lettered, at, bound
                   FROM ckpt_sink_receipt, generate_series(0, 19999) AS i WHERE partition = 'main'""",
                "ANALYZE ckpt_sink_receipt",
                "SELECT pg_stat_force_next_flush()",
            )
            before = scalar(harness.dsn, looked_at)

            news = run.receipts({"main": KnownReceipts(1, 200_000)})
            run.sink.close()
            execute(harness.dsn, "SELECT pg_stat_force_next_flush()")

            assert [(receipt.key.partition, receipt.key.seq) for receipt in news] == [("main", 20_000), ("new", 0)]
            assert scalar(harness.dsn, looked_at) - before < 100

    def test_who_may_not_create_it_is_told_what_to_grant(
        self, harness: TargetHarness, postgres_server: PostgresServer
    ) -> None:
        database = harness.dsn.rsplit("/", 1)[1]
        execute(
            harness.dsn,
            "DROP ROLE IF EXISTS narrow",
            "CREATE ROLE narrow LOGIN PASSWORD 'narrow'",
            "GRANT INSERT ON target TO narrow",
        )
        narrow = connection(postgres_server.database_dsn(database, "narrow", "narrow"))
        with closing(PostgresSink(pipeline(), narrow, SinkContext(LEDGER, "orders"))) as sink:
            with pytest.raises(ConfigError, match="may not create the sink's bookkeeping") as caught:
                sink.create_bookkeeping()
            assert "GRANT CREATE ON SCHEMA" in str(caught.value)

            execute(harness.dsn, "GRANT CREATE ON SCHEMA public TO narrow")
            sink.create_bookkeeping()
            sink.fence(1)
        with closing(PostgresWriter(pipeline(), narrow, SinkContext(LEDGER, "orders", 1))) as writer:
            outcome = LaneWriter(writer, none_refused).deliver(task(0), content(0))
            assert outcome.outcome is AttemptOutcome.DELIVERED


class TestRefusals:
    def check(self, dsn: str, **sink: Any) -> str:
        declared = pipeline(sink=sink)
        with (
            closing(PostgresSink(declared, connection(dsn), SinkContext(LEDGER, "orders"))) as opened,
            pytest.raises(ConfigError) as caught,
        ):
            opened.check()
        assert caught.value.hint
        return str(caught.value)

    def test_a_missing_target(self, postgres_database: str) -> None:
        assert "target table public.target does not exist" in self.check(postgres_database)

    def test_a_view(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE VIEW target AS SELECT 1 AS id")

        assert "is not a table" in self.check(postgres_database)

    @pytest.mark.parametrize("column", ["id int", "id int UNIQUE"])
    def test_a_key_that_is_none(self, postgres_database: str, column: str) -> None:
        execute(postgres_database, f"CREATE TABLE target ({column})")

        assert "ADD PRIMARY KEY" in self.check(postgres_database, mode="upsert", key=["id"])

    def test_a_key_column_that_is_missing(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE target (id int PRIMARY KEY)")

        assert "no column nr" in self.check(postgres_database, mode="upsert", key=["nr"])

    def test_a_target_that_the_user_may_not_write(
        self, harness: TargetHarness, postgres_server: PostgresServer
    ) -> None:
        database = harness.dsn.rsplit("/", 1)[1]
        execute(harness.dsn, "DROP ROLE IF EXISTS looker", "CREATE ROLE looker LOGIN PASSWORD 'look'")

        assert "GRANT INSERT" in self.check(postgres_server.database_dsn(database, "looker", "look"))

    def test_an_unreachable_server_is_the_sink_as_a_whole(self, postgres_database: str) -> None:
        sink = PostgresSink(pipeline(), connection(postgres_database, port=1), SinkContext(LEDGER, "orders"))

        with pytest.raises(SinkError, match="cannot connect") as caught:
            sink.check()
        assert caught.value.is_outage
