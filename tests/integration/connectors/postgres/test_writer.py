"""Tests of the postgres writer: types, casts, upserts, bad records, lost connections."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

import psycopg2
import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.postgres.reader import PostgresReader
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.postgres.writer import PostgresWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.spark.lane.gather import numbered
from airflow_provider_ckpt.testing.lane_writer import LaneWriter
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

CONTEXT = SinkContext("0b6f6f0e-0000-4000-8000-000000000000", "orders", 1)


class Lane:
    """A writer into ``public.target`` whose fence stands."""

    def __init__(self, dsn: str, *, sink: dict[str, Any] | None = None, **rest: Any) -> None:
        self.dsn = dsn
        self.pipeline = pipeline(sink=sink, **rest)
        self._sent = 0
        self._closing = ExitStack()
        self.sink = PostgresSink(self.pipeline, connection(dsn), CONTEXT)
        self.writer = PostgresWriter(self.pipeline, connection(dsn), CONTEXT)
        self._closing.callback(self.sink.close)
        self._closing.callback(self.writer.close)

    def __enter__(self) -> Self:
        self.sink.check()
        self.sink.fence(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.close()

    def send(self, **columns: Any) -> Outcome:
        """Deliver rows as the next batch."""
        numbers = pa.array(range(len(next(iter(columns.values())))), pa.int64())
        return self.send_table(pa.table({ROW_NUMBER: numbers, **columns}))

    def send_table(self, rows: pa.Table) -> Outcome:
        """Deliver rows as the next batch."""
        key = BatchKey(1, "public.source", self._sent)
        self._sent += 1
        task = BatchTask(key, Range(self._sent * 1000, self._sent * 1000 + 1000), 1)

        def originals(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
            records = pa.table({name: _for_python(rows.column(name)) for name in rows.column_names}).to_pylist()
            return [
                DeadLetter(r[ROW_NUMBER], None, json.dumps(r, default=str).encode(), errors[r[ROW_NUMBER]], {"a": "b"})
                for r in records
                if r[ROW_NUMBER] in errors
            ]

        return LaneWriter(self.writer, originals).deliver(task, BatchContent(rows, [], rows.num_rows, 0))

    def rows(self, what: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        """The target's rows."""
        return execute(self.dsn, f"SELECT {what} FROM target ORDER BY {order}")

    def dead_letters(self) -> list[tuple[Any, ...]]:
        """Position and SQLSTATE of each dead letter."""
        return execute(self.dsn, "SELECT position, sqlstate FROM ckpt_sink_dead_letter ORDER BY position")

    @property
    def receipts(self) -> list[Receipt]:
        return list(self.sink.receipts({}))


def _for_python(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days and times as numbers, for Python's own are few."""
    return values.cast(f"int{values.type.bit_width}") if pa.types.is_temporal(values.type) else values


def target(dsn: str, columns: str) -> str:
    execute(dsn, f"CREATE TABLE target ({columns})")
    return dsn


def delivered(outcome: Outcome) -> bool:
    assert outcome.error is None, outcome.error
    return outcome.outcome is AttemptOutcome.DELIVERED


def error_of(outcome: Outcome) -> ErrorInfo:
    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    return outcome.error


EVERY_TYPE = """
    id int PRIMARY KEY, flag bool, s smallint, b bigint, r real, d double precision, t text, v varchar(9), c char(4),
    raw bytea, day date, ts timestamp, tz timestamptz, n numeric(20, 4), free numeric, j json, jb jsonb, u uuid,
    a int[], m mood, i interval, clock time, net inet, bits bit(3), age positive, nm name
"""
EVERY_VALUE = [
    """(1, true, -32768, 9223372036854775807, 'NaN', '-Infinity', E'naïve ✓ \\t', 'exactly 9', 'ab', '\\x00ff',
        '2024-02-29', '1969-12-31 23:59:59.999999', '2024-03-31 01:30+01', -1234567890123456.7891, 1e-30, '{"a":  1}',
        '{"a": [1, null]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,NULL,3}', 'ok', '1 year -2 days 00:00:01.5',
        '23:59:59.999999',
        '::1/64', B'101', 7, 'a name')""",
    """(2, false, 0, 0, 0, 0, '', '', '', '', 'infinity', 'infinity', '-infinity', 0, 'NaN', 'null', '"x"',
        '00000000-0000-0000-0000-000000000000', '{}', 'sad', '0', '00:00', '127.0.0.1', B'000', 1, '')""",
    "(3" + ", NULL" * 25 + ")",
]


class TestTypes:
    def test_every_type_goes_from_table_to_table_without_loss(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
            f"CREATE TABLE source ({EVERY_TYPE})",
            "INSERT INTO source VALUES " + ", ".join(EVERY_VALUE),
            f"CREATE TABLE target ({EVERY_TYPE})",
        )
        source = PostgresSource(pipeline(), connection(postgres_database))
        reader = PostgresReader(pipeline(), connection(postgres_database), source.shape())
        (planned,) = source.plan(PlanRequest([RangeToPlan("public.source", 0)], 10, 10)).batches
        task = BatchTask(BatchKey(1, planned.partition, 0), planned.range, 1)
        rows = pa.Table.from_batches(list(reader.read(task)))
        source.close()
        reader.close()

        with Lane(postgres_database) as lane:
            assert delivered(lane.send_table(numbered(rows)))
        text = "SELECT {0}::text FROM {0} ORDER BY id"
        assert execute(postgres_database, text.format("target")) == execute(postgres_database, text.format("source"))

    @pytest.mark.parametrize(
        ("column", "values", "expected"),
        [
            ("smallint", pa.array([1, None], pa.int64()), [1, None]),
            ("bigint", pa.array([1], pa.int8()), [1]),
            ("int", pa.array([1.0], pa.float64()), [1]),
            ("int", pa.array(["42"]), [42]),
            ("numeric", pa.array([2**63 - 1], pa.int64()), [Decimal(2**63 - 1)]),
            ("numeric(10, 2)", pa.array([Decimal("-1.50")], pa.decimal128(20, 2)), [Decimal("-1.50")]),
            ("numeric(10, 2)", pa.array(["-12345678.9", "1e3"]), [Decimal("-12345678.90"), Decimal("1000.00")]),
            ("numeric(10, 2)", pa.array(["0.05", "14e-2"]), [Decimal("0.05"), Decimal("0.14")]),
            ("numeric(10, 2)", pa.array(["7", "NaN"]), [Decimal("7.00"), Decimal("NaN")]),
            ("numeric(38, 0)", pa.array(["9" * 38]), [Decimal("9" * 38)]),
            ("float8", pa.array([1, 2], pa.int32()), [1.0, 2.0]),
            ("float4", pa.array([0.5], pa.float64()), [0.5]),
            ("text", pa.array(["x"], pa.large_string()), ["x"]),
            ("text", pa.array([7], pa.int32()), ["7"]),
            ("text", pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "x", "y"]),
            ("text", pa.nulls(2), [None, None]),
            ("int[]", pa.nulls(1), [None]),
            ("bool", pa.array(["yes", "f"]), [False, True]),
            ("date", pa.array(["2024-02-29"]), [date(2024, 2, 29)]),
            ("date", pa.array([date(2024, 2, 29)]), [date(2024, 2, 29)]),
            ("timestamp", pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "Asia/Tokyo")), [datetime(2024, 1, 1)]),
            ("timestamptz", pa.array([datetime(2024, 1, 1)], pa.timestamp("ms")), [datetime(2024, 1, 1, tzinfo=UTC)]),
            ("timestamptz", pa.array(["2024-01-01 00:00+00"]), [datetime(2024, 1, 1, tzinfo=UTC)]),
            ("uuid", pa.array(["{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"]), ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
            ("bytea", pa.array([b"\x00\xff"], pa.binary(2)), [b"\x00\xff"]),
        ],
    )  # fmt: skip
    def test_a_column_is_cast_to_what_the_target_needs(
        self, postgres_database: str, column: str, values: pa.Array, expected: list[Any]
    ) -> None:
        with Lane(target(postgres_database, f"x {column}")) as lane:
            assert delivered(lane.send(x=values))
            assert lane.dead_letters() == []
            found = [bytes(x) if isinstance(x, memoryview) else x for (x,) in lane.rows()]
        assert str(found) == str(expected)

    def test_a_row_may_come_in_many_pieces(self, postgres_database: str) -> None:
        piece = pa.table(
            {
                ROW_NUMBER: pa.array([1, 2], pa.int64()),
                "x": ["a", None],
                "u": [None, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
            }
        )
        rows = pa.concat_tables([piece.slice(1), piece, piece.slice(0, 1)])
        with Lane(target(postgres_database, "x text, u uuid")) as lane:
            assert delivered(lane.send_table(rows))
            assert len(lane.rows("u")) == 4
            assert scalar(lane.dsn, "SELECT count(u) FROM target") == 2

    def test_columns_that_the_target_computes_are_left_to_it(self, postgres_database: str) -> None:
        twice = "int GENERATED ALWAYS AS (id * 2) STORED"
        columns = f"id int GENERATED ALWAYS AS IDENTITY, twice {twice}, n text DEFAULT 'new'"
        with Lane(target(postgres_database, columns)) as lane:
            assert delivered(lane.send(id=[5], twice=[99]))
            assert delivered(lane.send(id=["6"], twice=[99]))
            assert lane.rows() == [(5, 10, "new"), (6, 12, "new")]

    def test_a_column_that_the_target_lacks_halts_and_names_both_sides(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int, b text")) as lane:
            error = error_of(lane.send(id=[1], extra=["x"], b=["y"]))

            assert error.type is ErrorType.CONFIG
            assert "has no column extra; the rows have id, extra, b; the target has id, b" in error.message
            assert (lane.rows(), lane.dead_letters(), lane.receipts) == ([], [], [])

    def test_a_type_that_has_no_form_in_postgresql_halts(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "x text")) as lane:
            error = error_of(lane.send(x=[{"a": 1}]))

            assert error.type is ErrorType.CONFIG
            assert "struct<a: int64>" in error.message

    def test_names_that_need_quotes_are_quoted(self, postgres_database: str) -> None:
        columns = 'id int PRIMARY KEY, "ckpt_item" text, "%s {0} ""$ckpt$ é" numeric CHECK ("%s {0} ""$ckpt$ é" > 0)'
        with Lane(target(postgres_database, columns)) as lane:
            outcome = lane.send(**{"id": [1, 2], "ckpt_item": ["x", "y"], '%s {0} "$ckpt$ é': ["1", "-1"]})

            assert delivered(outcome)
            assert lane.rows("ckpt_item") == [("x",)]
            assert lane.dead_letters() == [(1, "23514")]


class TestBadRecords:
    def test_each_costs_itself_alone(self, postgres_database: str) -> None:
        columns = "id int PRIMARY KEY, name varchar(5) NOT NULL, amount numeric(6, 2) CHECK (amount > 0)"
        with Lane(target(postgres_database, columns)) as lane:
            outcome = lane.send(
                id=[1, 2, 3, 4, 5, 1, 7],
                name=["ok", "too long", None, "nul\0", "ok", "again", "last"],
                amount=["1.5", "1", "1", "1", "-1", "1", "99999"],
            )

            assert delivered(outcome)
            assert lane.rows() == [(1, "ok", Decimal("1.50"))]
            assert lane.dead_letters() == [
                (1, "22001"), (2, "23502"), (3, "22021"), (4, "23514"), (5, "23505"), (6, "22003"),
            ]  # fmt: skip
            assert outcome.dead_letters == {"Sink": 6}
            assert outcome.receipt == lane.receipts[0]
            assert (outcome.receipt.counts.delivered, outcome.receipt.counts.dead_lettered) == (1, 6)

    def test_a_dead_letter_says_all_there_is_to_say(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int CHECK (id > 0)")) as lane:
            lane.send(id=[1, -2])

            (found,) = execute(
                lane.dsn,
                """SELECT ledger, pipeline, generation, partition, seq, attempt, epoch, position, key,
                   convert_from(value, 'UTF8')::jsonb, error_type, error, sqlstate, headers, at <= now()
                   FROM ckpt_sink_dead_letter""",
            )
        assert found == (
            CONTEXT.ledger, "orders", 1, "public.source", 0, 1, 1, 1, None, {"id": -2, "__number": 1}, "Sink",
            'new row for relation "target" violates check constraint "target_id_check"', "23514", {"a": "b"}, True,
        )  # fmt: skip

    def test_the_good_ones_around_them_are_all_delivered(self, postgres_database: str) -> None:
        bad = {0, 63, 64, 130, 499}
        with Lane(target(postgres_database, "id int PRIMARY KEY CHECK (id >= 0)")) as lane:
            assert delivered(lane.send(id=[-number - 1 if number in bad else number for number in range(500)]))

            assert lane.rows() == [(number,) for number in range(500) if number not in bad]
            assert [position for position, _ in lane.dead_letters()] == sorted(bad)

    def test_values_that_do_not_fit_the_column_s_type(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "s smallint, d date, u uuid, j jsonb")) as lane:
            good = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
            outcome = lane.send(
                s=pa.array([1, 70000, 3, 4, 5], pa.int64()),
                d=["2024-01-01", "2024-01-01", "2024-02-30", "2024-01-01", "2024-01-01"],
                u=[good, good, good, "nope", good],
                j=["{}", "{}", "{}", "{}", "{"],
            )

            assert delivered(outcome)
            assert lane.rows("s") == [(1,)]
            assert lane.dead_letters() == [(1, "22003"), (2, "22008"), (3, "22P02"), (4, "22P02")]

    def test_a_deferred_constraint_is_checked_before_the_commit(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE parent (id int PRIMARY KEY)", "INSERT INTO parent VALUES (1), (2)")
        columns = "id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED"
        with Lane(target(postgres_database, columns)) as lane:
            assert delivered(lane.send(id=[1, 9, 2]))
            assert lane.rows() == [(1,), (2,)]
            assert lane.dead_letters() == [(1, "23503")]

    def test_rows_that_need_each_other_are_not_torn_apart_by_a_bad_one(self, postgres_database: str) -> None:
        columns = "id int PRIMARY KEY, up int REFERENCES target DEFERRABLE INITIALLY DEFERRED"
        with Lane(target(postgres_database, columns)) as lane:
            assert delivered(lane.send(id=[1, 2, 2], up=[2, None, None]))
            assert lane.rows() == [(1, 2), (2, None)]
            assert lane.dead_letters() == [(2, "23505")]

    def test_a_later_batch_takes_the_fast_way_again(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int CHECK (id > 0)")) as lane:
            lane.send(id=[-1, 1])
            lane.send(id=[-2, 2])
            lane.send(id=[3, 4])

            assert lane.rows() == [(1,), (2,), (3,), (4,)]
            assert [receipt.counts.dead_lettered for receipt in lane.receipts] == [1, 1, 0]

    def test_dead_letters_that_cannot_be_kept_are_tried_three_times_more_and_nothing_is_sent(
        self, postgres_database: str
    ) -> None:
        with Lane(target(postgres_database, "id int CHECK (id > 0)")) as lane:
            execute(lane.dsn, "ALTER TABLE ckpt_sink_dead_letter ADD CHECK (position < 0)")
            started = time.monotonic()

            error = error_of(lane.send(id=pa.array([1, -1])))

            assert 3 <= time.monotonic() - started < 10
            assert (error.type, error.sqlstate) == (ErrorType.DEAD_LETTER_QUEUE, "23514")
            assert (lane.rows(), lane.dead_letters(), lane.receipts) == ([], [], [])

    def test_dead_letters_that_can_be_kept_again_are_written_with_their_batch(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int CHECK (id > 0)")) as lane:
            execute(lane.dsn, "ALTER TABLE ckpt_sink_dead_letter ADD CONSTRAINT never CHECK (position < 0)")
            mended = threading.Timer(
                0.5, execute, (lane.dsn, "ALTER TABLE ckpt_sink_dead_letter DROP CONSTRAINT never")
            )
            mended.start()

            assert delivered(lane.send(id=pa.array([1, -1])))

            mended.join()
            assert (lane.rows(), lane.dead_letters()) == ([(1,)], [(1, "23514")])

    def test_without_dead_letters_nothing_is_dropped_and_the_run_halts(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int CHECK (id > 0)"), dead_letter_queue={"enabled": False}) as lane:
            outcome = lane.send(id=[1, -2])

            error = error_of(outcome)
            assert "dead_letter_queue.enabled is false" in error.message
            assert "Failing row" not in error.message  # it would go to logs, events and XCom
            assert lane.pipeline.policy.action(error) is ErrorAction.HALT
            assert (lane.rows(), lane.receipts) == ([], [])
            assert delivered(lane.send(id=[1]))

    def test_a_row_that_a_trigger_refuses_by_another_error_fails_the_batch(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int")) as lane:
            execute(
                lane.dsn,
                "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not on sundays'; END$$",
                "CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION no()",
            )

            error = error_of(lane.send(id=[1]))

            assert (error.sqlstate, error.recoverable, error.is_outage) == ("P0001", False, False)
            assert "not on sundays" in error.message
            assert "[libpq]" not in error.message


UPSERT = {"mode": "upsert", "key": ["id"]}


class TestUpsert:
    def test_rows_replace_what_has_their_key(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int PRIMARY KEY, v text, kept int DEFAULT 7"), sink=UPSERT) as lane:
            lane.send(id=[1, 2], v=["a", "b"])
            lane.send(id=[2, 3], v=["B", "c"])

            assert lane.rows() == [(1, "a", 7), (2, "B", 7), (3, "c", 7)]

    def test_of_several_versions_in_a_batch_the_last_one_stays(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int PRIMARY KEY, v numeric"), sink=UPSERT) as lane:
            outcome = lane.send(id=[1, 1, 2, 1], v=["1", "2", "9", "3"])

            assert delivered(outcome)
            assert lane.rows() == [(1, 3), (2, 9)]
            assert lane.receipts[0].counts.delivered == 4

    def test_a_bad_version_leaves_the_one_before_it(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int PRIMARY KEY, v int CHECK (v > 0)"), sink=UPSERT) as lane:
            assert delivered(lane.send(id=[1, 1, None, 2], v=[5, -5, 5, 6]))

            assert lane.rows() == [(1, 5), (2, 6)]
            assert lane.dead_letters() == [(1, "23514"), (2, "23502")]

    def test_a_key_alone_is_enough(self, postgres_database: str) -> None:
        columns = 'a int, "B b" text, PRIMARY KEY ("B b", a)'
        with Lane(target(postgres_database, columns), sink={"mode": "upsert", "key": ["a", "B b"]}) as lane:
            lane.send(**{"a": [1, 1], "B b": ["x", "y"]})
            lane.send(**{"a": [1, 2], "B b": ["x", "y"]})

            assert len(lane.rows()) == 3


class TestLostConnections:
    def end_sessions(self, dsn: str) -> None:
        execute(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ckpt:%'")

    def test_a_batch_that_loses_its_session_may_be_tried_again(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int")) as lane:
            lane.send(id=[1])
            self.end_sessions(lane.dsn)

            error = error_of(lane.send(id=[2]))

            assert (error.recoverable, error.is_outage) == (True, False)
            assert delivered(lane.send(id=[3]))
            assert lane.rows() == [(1,), (3,)]

    def test_a_server_that_is_gone_is_the_sink_as_a_whole(self) -> None:
        with PostgresServer(in_memory=True) as server:
            dsn = target(server.new_database(), "id int")
            with Lane(dsn) as lane:
                lane.send(id=[1])
                server.stop(keep=True)

                error = error_of(lane.send(id=[2]))
                again = error_of(lane.send(id=[2]))
                server.start()

                assert (error.recoverable, error.is_outage) == (True, True)
                assert (again.recoverable, again.is_outage) == (True, True)
                assert delivered(lane.send(id=[3]))
                assert lane.rows() == [(1,), (3,)]

    def test_a_target_dropped_meanwhile_halts(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int")) as lane:
            lane.send(id=[1])
            execute(lane.dsn, "DROP TABLE target")

            error = error_of(lane.send(id=[2]))

            assert 'relation "public.target" does not exist' in error.message
            assert lane.pipeline.policy.action(error) is ErrorAction.HALT

    def test_a_lock_that_does_not_come_is_transient(self, postgres_database: str) -> None:
        with Lane(target(postgres_database, "id int")) as lane:
            execute(lane.dsn, f"ALTER DATABASE {lane.dsn.rsplit('/', 1)[1]} SET lock_timeout = '100ms'")
            blocker = psycopg2.connect(lane.dsn)
            blocker.cursor().execute("LOCK target IN ACCESS EXCLUSIVE MODE")

            error = error_of(lane.send(id=[1]))
            blocker.close()

            assert (error.sqlstate, error.recoverable, error.is_outage) == ("55P03", True, False)
            assert delivered(lane.send(id=[1]))
