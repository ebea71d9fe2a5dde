"""Raw copy between two tables gives the same rows and receipts as records, which are used where it is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.postgres.raw_copy import PostgresRawCopy
from airflow_provider_ckpt.connectors.postgres.reader import PostgresReader
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.lane.fast_path import run_lane
from airflow_provider_ckpt.spark.lane.stack_traces import split_outcomes
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

LEDGER = "0b6f6f0e-0000-4000-8000-000000000000"
MOST = 2**62
WHOLE = [Range(-MOST, MOST)]
DELIVERED = AttemptOutcome.DELIVERED

TYPES = {
    "a bool": "true",
    "b bpchar": "'x  '",
    "c char(5)": "'xy'",
    "d bytea": "'\\x00ff00'",
    "e cidr": "'10.0.0.0/8'",
    "f date": "'0044-03-15 BC'",
    "g float4": "'-0'",
    "h float8": "'NaN'",
    "i inet": "'::1/64'",
    "j int2": "-7",
    "k int4": "8",
    "l interval": "'1 year -2 days 3.000004 s'",
    "m json": """'{"a":  1, "a": 2}'""",
    "n jsonb": """'{"a": 1.50}'""",
    "o macaddr": "'08:00:2b:01:02:03'",
    "p numeric": "'123456789012345678901234567890.00100'",
    "q numeric(10, 2)": "1.25",
    "r text": "E'tab\\t, null \\\\N, \U0001f600, newline\\n'",
    "s time": "'24:00'",
    "t timestamp": "'infinity'",
    "u timestamptz": "'-infinity'",
    "v timetz": "'04:05:06.789+05:30'",
    "w uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "x varchar": "''",
    "y varchar(9)": "'nine char'",
}


def run(dsn: str, ranges: Sequence[Range] = WHOLE, epoch: int = 1, seq: int = 0, **keys: Any) -> list[Outcome]:
    """Deliver ranges as the batches of one lane; return their outcomes."""
    declared = pipeline(**keys)
    given = connection(dsn)
    with closing(PostgresSource(declared, given)) as source:
        shape = source.shape()
        given_tasks = [
            BatchTask(BatchKey(1, "public.source", seq + number), span, 1) for number, span in enumerate(ranges)
        ]
        tasks = source.locate(given_tasks, [])
    job = Job(declared.document(), SinkContext(LEDGER, "orders", epoch), shape, {"warehouse": given})
    lanes = pa.RecordBatch.from_pydict({"id": [0]})
    rows = [
        row
        for batch in run_lane(
            job, Wave(1, [tasks], 60), pa.schema([(POSITION, pa.int64()), ("id", pa.int64())]), None, iter([lanes])
        )
        for row in batch[0]
    ]
    outcomes, deferred = split_outcomes([row.as_py() for row in rows])
    assert not deferred
    return outcomes


def fence(dsn: str, epoch: int = 1) -> None:
    """Prepare the target for a run of this epoch."""
    with closing(PostgresSink(pipeline(), connection(dsn), SinkContext(LEDGER, "orders", epoch))) as sink:
        sink.check()
        sink.fence(epoch)


def receipts(dsn: str) -> list[Receipt]:
    """Return every receipt of the target."""
    with closing(PostgresSink(pipeline(), connection(dsn), SinkContext(LEDGER, "orders", 1))) as sink:
        return sorted(sink.receipts({}), key=lambda receipt: receipt.key)


def rows(dsn: str, table: str = "target") -> list[tuple[Any, ...]]:
    """Return every row of a table as text."""
    return execute(dsn, f"SELECT whole::text FROM {table} AS whole ORDER BY 1")


@pytest.fixture
def raw_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt to read records fail."""

    def refuse(*_: Any) -> None:
        raise AssertionError("records were read")

    monkeypatch.setattr(PostgresReader, "read", refuse)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets an entry for each batch: whether it was delivered raw."""
    found: list[bool] = []
    deliver = PostgresRawCopy.deliver

    def noted(self: PostgresRawCopy, *given: Any) -> Outcome | None:
        outcome = deliver(self, *given)
        found.append(outcome is not None)
        return outcome

    monkeypatch.setattr(PostgresRawCopy, "deliver", noted)
    return found


@pytest.mark.usefixtures("raw_only")
def test_every_type_arrives_as_it_is(postgres_database: str) -> None:
    dsn = postgres_database
    columns = ", ".join(TYPES)
    execute(
        dsn,
        f"CREATE TABLE source (id int8 PRIMARY KEY, {columns})",
        f"INSERT INTO source VALUES (1, {', '.join(TYPES.values())})",
        "INSERT INTO source (id) VALUES (2)",
        f"CREATE TABLE target (other text DEFAULT 'd', {', '.join(reversed(TYPES))}, id int8)",
    )
    fence(dsn)

    (outcome,) = run(dsn)

    assert outcome.outcome is DELIVERED
    names = ", ".join(column.split()[0] for column in TYPES)
    assert execute(dsn, f"SELECT (id, {names})::text FROM target ORDER BY id") == rows(dsn, "source")
    assert execute(dsn, "SELECT DISTINCT other FROM target") == [("d",)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int2", ["-32768", "0", "32767"]),
        ("int4", ["-5", "5", "2147483647"]),
        ("int8", [f"-{2**60}", "0", f"{2**60}"]),
        ("date", ["'0001-12-31 BC'", "'1999-12-31'", "'2024-02-29'"]),
        ("timestamp", ["'1999-12-31 23:59:59.999999'", "'2000-01-01'", "'2024-02-29 12:00:00.000001'"]),
        ("timestamptz", ["'1969-12-31 23:59:59+01'", "'1970-01-01 00:00+00'", "'9999-01-01'"]),
    ],
)
def test_receipts_are_those_of_records(postgres_server: PostgresServer, kind: str, values: list[str]) -> None:
    kept = []
    for mode in ("append", "upsert"):  # upserts are written as records
        dsn = postgres_server.new_database()
        execute(
            dsn,
            f"CREATE TABLE source (at {kind} NOT NULL, id int8)",
            *(f"INSERT INTO source VALUES ({value}, {number})" for number, value in enumerate([*values, values[1]])),
            f"CREATE TABLE target (at {kind}, id int8 UNIQUE)",
            "CREATE INDEX ON source (at)",
        )
        fence(dsn)
        key = {"key": ["id"]} if mode == "upsert" else {}
        source = {"cursor": "at", "key": ["id"]}
        (outcome,) = run(dsn, source=source, sink={"mode": mode, **key})
        assert outcome.outcome is DELIVERED
        assert rows(dsn) == rows(dsn, "source")
        (receipt,) = receipts(dsn)
        kept.append((receipt.key, receipt.range, receipt.verdict, receipt.counts, receipt.positions))

    assert kept[0] == kept[1]
    assert kept[0][3].delivered == 4


def simple(dsn: str, target: str = "id int8, name text", count: int = 20, source: str = "id int8, name text") -> None:
    """Create a source with rows 1 to ``count``, and a fenced target."""
    execute(
        dsn,
        f"CREATE TABLE source ({source})",
        f"INSERT INTO source SELECT n, 'row ' || n FROM generate_series(1, {count}) AS n",
        "ALTER TABLE source ADD PRIMARY KEY (id)",
        f"CREATE TABLE target ({target})",
    )
    fence(dsn)


def spans(*ends: int) -> list[Range]:
    """Return adjacent ranges from 0, each up to one of these ends."""
    return [Range(start, end) for start, end in zip((0, *ends), ends, strict=False)]


def test_an_empty_batch_gets_a_receipt(postgres_database: str, used: list[bool]) -> None:
    simple(postgres_database)

    outcomes = run(postgres_database, spans(5, 100, 200))

    assert [outcome.outcome for outcome in outcomes] == [DELIVERED] * 3
    assert [receipt.counts.delivered for receipt in receipts(postgres_database)] == [4, 16, 0]
    assert used == [True] * 3


def test_a_row_that_the_target_refuses_becomes_a_dead_letter_and_the_others_arrive_once(
    postgres_database: str, used: list[bool]
) -> None:
    dsn = postgres_database
    simple(dsn, "id int8 CHECK (id <> 13), name text")

    outcomes = run(dsn, spans(10, 15, 18, 30))

    assert [outcome.outcome for outcome in outcomes] == [DELIVERED] * 4
    assert [receipt.counts.dead_lettered for receipt in receipts(dsn)] == [0, 1, 0, 0]
    assert execute(dsn, "SELECT position FROM ckpt_sink_dead_letter") == [(13,)]
    assert execute(dsn, "SELECT id FROM target ORDER BY id") == [(n,) for n in range(1, 21) if n != 13]
    assert used[:2] == [True, False]
    assert not any(used[1:])


def test_a_batch_that_has_a_receipt_is_not_sent_again(postgres_database: str) -> None:
    simple(postgres_database)
    run(postgres_database, spans(10, 30))

    outcomes = run(postgres_database, spans(10, 30))

    assert all(outcome.receipt_existed for outcome in outcomes)
    assert scalar(postgres_database, "SELECT count(*) FROM target") == 20


def test_a_lane_behind_a_newer_fence_sends_nothing(postgres_database: str) -> None:
    simple(postgres_database)
    fence(postgres_database, 2)

    (outcome,) = run(postgres_database)

    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert "epoch 2" in outcome.error.message
    assert rows(postgres_database) == []
    assert receipts(postgres_database) == []


def test_a_trigger_that_swallows_rows_is_reported(postgres_database: str) -> None:
    simple(postgres_database)
    execute(
        postgres_database,
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 7 THEN RETURN NULL; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER swallow BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION swallow()",
    )

    (outcome,) = run(postgres_database)

    assert outcome.error is not None
    assert "20 rows were sent, and 19 were added" in outcome.error.message
    assert rows(postgres_database) == []


def test_a_session_that_ends_amid_the_copy_leaves_nothing_twice(postgres_database: str, used: list[bool]) -> None:
    dsn = postgres_database
    simple(dsn)
    execute(
        dsn,
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION quit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 12 AND nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
        " RETURN NEW; END $$",
        "CREATE TRIGGER quit BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION quit()",
    )

    outcomes = run(dsn, spans(10, 15, 30))

    assert [outcome.outcome for outcome in outcomes] == [DELIVERED] * 3
    assert rows(dsn) == rows(dsn, "source")
    assert used[:2] == [True, False]


def test_an_error_that_may_pass_fails_the_attempt_and_nothing_is_tried_beside_it(
    postgres_database: str, used: list[bool]
) -> None:
    dsn = postgres_database
    simple(dsn)
    execute(
        dsn,
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('tries') = 2 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER busy BEFORE INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION busy()",
    )

    outcomes = run(dsn, spans(10, 15, 30))

    assert [outcome.outcome for outcome in outcomes] == [DELIVERED, AttemptOutcome.FAILED, DELIVERED]
    assert outcomes[1].error is not None
    assert (outcomes[1].error.sqlstate, outcomes[1].error.recoverable) == ("40001", True)
    assert [receipt.key.seq for receipt in receipts(dsn)] == [0, 2]
    assert used == [True] * 3


@pytest.mark.parametrize(
    ("target", "statements"),
    [
        ("id int8, name varchar(10)", ()),
        ("id int8, name text, cost numeric(10, 1)", ()),
        ("id int4, name text", ()),
        ("id numeric, name text", ()),
        ("id int8, name bytea", ()),
        ("id int8, name short", ()),
        ("id int8, name text", ("CREATE RULE twin AS ON INSERT TO target DO ALSO SELECT 1",)),
    ],
)
def test_another_type_or_a_rule_sends_records(
    postgres_database: str, used: list[bool], target: str, statements: Sequence[str]
) -> None:
    execute(postgres_database, "CREATE DOMAIN short AS text CHECK (length(value) < 9)")
    simple(postgres_database, target)
    if "cost" in target:
        execute(postgres_database, "ALTER TABLE source ADD cost numeric(10, 2) DEFAULT 1.5")
    execute(postgres_database, *statements)

    (outcome,) = run(postgres_database)

    assert outcome.outcome is DELIVERED
    assert scalar(postgres_database, "SELECT count(*) FROM target") == 20
    assert used == []


def test_a_database_of_another_encoding_sends_records(postgres_server: PostgresServer, used: list[bool]) -> None:
    dsn = postgres_server.new_database()
    name = dsn.rsplit("/", 1)[1]
    execute(dsn, f"CREATE DATABASE {name}_ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    dsn = f"{dsn}_ascii"
    simple(dsn)

    (outcome,) = run(dsn)

    assert outcome.outcome is DELIVERED
    assert rows(dsn) == rows(dsn, "source")
    assert used == []


def test_a_source_table_created_anew_is_refused(postgres_database: str) -> None:
    simple(postgres_database)
    declared, given = pipeline(), connection(postgres_database)
    with closing(PostgresSource(declared, given)) as source:
        shape = source.shape()
        tasks = source.locate([BatchTask(BatchKey(1, "public.source", 0), WHOLE[0], 1)], [])
    execute(
        postgres_database, "CREATE TABLE again (LIKE source)", "DROP TABLE source", "ALTER TABLE again RENAME TO source"
    )
    raw = PostgresRawCopy(declared, given, given, SinkContext(LEDGER, "orders", 1), shape)

    with closing(raw):
        assert raw.read(tasks[0]) is None


@pytest.mark.parametrize("altered", ["source", "target"])
def test_a_column_that_is_altered_between_two_batches_is_not_copied_with_its_old_type(
    postgres_database: str, altered: str
) -> None:
    dsn = postgres_database
    simple(dsn, "id int8, name text, size int8")
    execute(dsn, "ALTER TABLE source ADD size int8 DEFAULT 7")
    declared, given = pipeline(), connection(dsn)
    first, second = (BatchTask(BatchKey(1, "public.source", seq), Range(seq * 10, seq * 10 + 10), 1) for seq in (0, 1))
    with closing(PostgresSource(declared, given)) as source:
        shape = source.shape()

    with closing(PostgresRawCopy(declared, given, given, SinkContext(LEDGER, "orders", 1), shape)) as raw:
        read = raw.read(first)
        assert read is not None
        assert raw.deliver(first, read) is not None
        execute(dsn, f"ALTER TABLE {altered} ALTER size TYPE float8")  # of the same length
        read = raw.read(second)
        assert read is None or raw.deliver(second, read) is None

    assert execute(dsn, "SELECT DISTINCT size FROM target") == [(7,)]
    assert [receipt.key.seq for receipt in receipts(dsn)] == [0]


def test_a_type_of_the_name_of_a_built_in_type_is_read_as_text(postgres_database: str, used: list[bool]) -> None:
    execute(postgres_database, "CREATE TYPE public.bytea AS (part int)")
    simple(postgres_database, "id int8, name text, data pg_catalog.bytea")
    execute(postgres_database, "ALTER TABLE source ADD data public.bytea DEFAULT ROW(7)")

    run(postgres_database)

    assert used == []
