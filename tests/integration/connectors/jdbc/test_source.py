"""Tests of the jdbc source: types, names, equal cursor values, secrets, time zones, and tables that change."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc import source as planning
from airflow_provider_ckpt.connectors.jdbc.column_types import MICROSECONDS_A_DAY
from airflow_provider_ckpt.connectors.jdbc.source import JdbcSource
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.wave import run_wave
from tests.integration.connectors.jdbc.jdbc_support import SparkReader, frame_of, job_of, pipeline, planned, rows_of
from tests.services.database_server import PASSWORD
from tests.services.jdbc import H2Server, drivers, to_postgres
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = """a"b'c`d {e} ? $ckpt$ ${f} %s \\n"""


@contextmanager
def java_in(spark: SparkSession, zone: str) -> Iterator[None]:
    """Spark's Java process in another time zone."""
    assert spark._jvm is not None
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_every_common_type_of_postgres_arrives_without_loss(
    spark: SparkSession, postgres_database: str, zone: str
) -> None:
    execute(
        postgres_database,
        """CREATE TABLE typed (
            id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(20, 6), n38 numeric(38, 0),
            free numeric, t text, c char(3), y bytea, d date, ts timestamp, tz timestamptz, u uuid, j jsonb, a int[],
            day_time time, span interval, ip inet, bits bit(3)
        )""",
        r"""INSERT INTO typed VALUES
            (1, true, -32768, 9223372036854775807, 1.5, 0.1, -12345678901234.567890,
             99999999999999999999999999999999999999, 1.00000000000000000000000000000000000000000000000001, E'é\n''"',
             'ab', '\x00ff', '2024-02-29',
             '2024-03-31 02:30:00.123456', '2024-03-31 02:30:00.123456+00', '6f1c3a52-0000-4000-8000-000000000001',
             '{"k": [1, null]}', '{1,NULL,3}', '12:34:56.789', '1 day 02:00', '10.0.0.1/8', '101'),
            (2, NULL, NULL, NULL, 'NaN', 'Infinity', NULL, NULL, 'NaN', '', '', '', '0001-01-01',
             '1969-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', NULL, 'null', '{}', NULL, NULL, NULL,
             NULL)""",
    )
    declared = pipeline("typed", "id")

    with java_in(spark, zone):
        shape, (first, second) = rows_of(spark, declared, to_postgres(postgres_database))

    kinds = dict(shape.columns)
    assert [kinds[name] for name in ("b", "i2", "f4", "n", "n38", "free", "ts", "tz", "u", "a")] == [
        "boolean", "smallint", "float", "decimal(20,6)", "decimal(38,0)", "string", "timestamp_ntz", "timestamp",
        "string", "string",
    ]  # fmt: skip
    assert first == {
        "id": 1, "b": True, "i2": -32768, "i8": 2**63 - 1, "f4": 1.5, "f8": 0.1,
        "n": Decimal("-12345678901234.567890"), "n38": Decimal("9" * 38),
        "free": "1.00000000000000000000000000000000000000000000000001", "t": "é\n'\"", "c": "ab ", "y": b"\x00\xff",
        "d": date(2024, 2, 29), "ts": datetime(2024, 3, 31, 2, 30, 0, 123456),
        "tz": datetime(2024, 3, 31, 2, 30, 0, 123456, UTC), "u": "6f1c3a52-0000-4000-8000-000000000001",
        "j": '{"k": [1, null]}', "a": "{1,NULL,3}", "day_time": "12:34:56.789", "span": "1 day 02:00:00",
        "ip": "10.0.0.1/8", "bits": "101",
    }  # fmt: skip
    assert str(second["f4"]) == "nan"
    assert (second["f8"], second["free"], second["t"], second["y"]) == (float("inf"), "NaN", "", b"")
    assert second["d"] == date(1, 1, 1)
    assert second["ts"] == datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert second["tz"] == datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert all(second[name] is None for name in ("b", "i2", "i8", "n", "n38", "u", "day_time", "span", "ip", "bits"))


def test_every_common_type_of_h2_arrives_without_loss(spark: SparkSession, h2: H2Server) -> None:
    database = h2.new_database()
    database.execute(
        "CREATE TABLE typed (id bigint PRIMARY KEY, b boolean, i1 tinyint, r real, n numeric(12, 2), f decfloat, "
        "t varchar, l clob, y varbinary, o blob, d date, ts timestamp(9), tz timestamp(6) with time zone, u uuid, "
        "dt time, a integer array)",
        "INSERT INTO typed VALUES (1, true, -5, 1.5, -12.30, 1.5, 'x''y', 'long', X'00ff', X'01', DATE '2024-02-29', "
        "TIMESTAMP '1969-12-31 23:59:59.123456789', TIMESTAMP WITH TIME ZONE '2024-03-31 02:30:00.5+02:00', "
        "'6f1c3a52-0000-4000-8000-000000000001', TIME '12:34:56', ARRAY[1, NULL])",
        "INSERT INTO typed (id) VALUES (2)",
    )

    _, (first, second) = rows_of(spark, pipeline("TYPED", "ID"), database.connection)

    assert first == {
        "ID": 1, "B": True, "I1": -5, "R": 1.5, "N": Decimal("-12.30"), "F": "1.5", "T": "x'y", "L": "long",
        "Y": b"\x00\xff", "O": b"\x01", "D": date(2024, 2, 29), "TS": datetime(1969, 12, 31, 23, 59, 59, 123456),
        "TZ": datetime(2024, 3, 31, 0, 30, 0, 500000, UTC), "U": "6f1c3a52-0000-4000-8000-000000000001",
        "DT": "12:34:56", "A": "[1, null]",
    }  # fmt: skip
    assert {name: value for name, value in second.items() if value is not None} == {"ID": 2}


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date", "numeric(18, 0)", "int2"])
@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo"])
def test_cursors_of_every_kind_give_each_row_once_in_any_time_zone(
    spark: SparkSession, postgres_database: str, kind: str, zone: str
) -> None:
    value = {
        "timestamp": "timestamp '2018-11-03 23:59:59.999' + n * interval '1 microsecond'",
        "timestamptz": "timestamptz '2018-11-04 02:59:59.999Z' + n * interval '1 hour'",
        "date": "date '2018-11-01' + n::int",
    }.get(kind, "n")
    execute(
        postgres_database,
        f"CREATE TABLE moved (at {kind} NOT NULL, n int)",
        f"INSERT INTO moved SELECT {value}, n FROM generate_series(-7, 12) AS n ORDER BY random()",
    )

    with java_in(spark, zone):
        _, rows = rows_of(spark, pipeline("moved", "at"), to_postgres(postgres_database), lanes=3)

    assert [row["n"] for row in rows] == list(range(-7, 13))


def test_names_that_need_quoting_stay_names(spark: SparkSession, postgres_database: str) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    execute(
        postgres_database,
        f"CREATE SCHEMA {quoted}",
        f'CREATE TABLE {quoted}.{quoted} ({quoted} bigint PRIMARY KEY, "x.y" timestamp, "SELECT" text)',
        f"INSERT INTO {quoted}.{quoted} VALUES (1, '2024-01-01', 'a'), (2, NULL, '; DROP TABLE')",
    )

    shape, rows = rows_of(spark, pipeline(f"{quoted}.{quoted}", HOSTILE), to_postgres(postgres_database))

    assert [name for name, _ in shape.columns] == [HOSTILE, "x.y", "SELECT"]
    assert [list(row.values()) for row in rows] == [[1, datetime(2024, 1, 1), "a"], [2, None, "; DROP TABLE"]]


def test_rows_of_one_cursor_value_are_never_torn_apart(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE tied (id int)",
        "INSERT INTO tied SELECT n FROM unnest(ARRAY[1, 2, 3, 3, 3, 3, 3, 3, 3, 4, 5, 5, 6]) AS n",
    )
    with closing(JdbcSource(pipeline("tied", "id"), to_postgres(postgres_database))) as source:
        plan = source.plan(PlanRequest([RangeToPlan("tied", START)], 3, 10**9))
        little = source.plan(PlanRequest([RangeToPlan("tied", 3)], 3, 1))

    assert [(batch.range, batch.records) for batch in plan.batches] == [
        (Range(START, 4), 9), (Range(4, 6), 3), (Range(6, 7), 1),
    ]  # fmt: skip
    assert [(batch.range, batch.records) for batch in little.batches] == [(Range(3, 4), 7)]
    assert little.more


def test_values_that_differ_by_less_than_a_microsecond_share_a_batch(spark: SparkSession, h2: H2Server) -> None:
    database = h2.new_database()
    database.execute(
        'CREATE TABLE fine ("AT" timestamp(9), n int)',
        "INSERT INTO fine SELECT DATEADD('NANOSECOND', x * 300, TIMESTAMP '2024-01-01 00:00:00'), x "
        "FROM SYSTEM_RANGE(0, 19)",
    )

    _, rows = rows_of(spark, pipeline("FINE", "AT"), database.connection, lanes=2)

    assert sorted(row["N"] for row in rows) == list(range(20))


def test_a_wave_of_lanes_is_read_in_order_and_without_an_exchange(spark: SparkSession, postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE shuffled (id int)",
        "INSERT INTO shuffled SELECT n FROM generate_series(1, 90) AS n ORDER BY random()",
    )
    declared, connection = pipeline("shuffled", "id"), to_postgres(postgres_database)
    with closing(JdbcSource(declared, connection)) as source:
        tasks = planned(source, 10)
        shape = source.shape()
    gap = BatchTask(BatchKey(1, tasks[0].key.partition, 50), Range(1000, 2000), 1)
    with closing(JdbcSource(declared, connection)) as source:
        (nothing,) = source.locate([gap], [])

    frame = frame_of(spark, job_of(declared, connection, shape), [tasks[5:], [nothing], tasks[:5]])
    told = frame._jdf.queryExecution().toString()
    read = [(row[c.BATCH], row["id"], row[c.MARKER] and json.loads(row[c.MARKER])["read"]) for row in frame.collect()]

    expected: list[tuple[int, int | None, int | None]] = []
    for lane, batches in enumerate([range(5, 9), [None], range(5)]):
        for index, batch in enumerate(batches):
            ids = [] if batch is None else [batch * 10 + n for n in range(1, 11)]
            number = c.batch_number(lane, index)
            expected += [*((number, at, None) for at in ids), (number, None, len(ids))]
    assert read == expected
    assert "Exchange" not in told
    assert PASSWORD not in told


@pytest.mark.parametrize("column", ["d date", "ts timestamp", "tz timestamptz"])
def test_infinity_is_refused_by_name_and_never_another_time(
    spark: SparkSession, postgres_database: str, column: str
) -> None:
    execute(postgres_database, f"CREATE TABLE endless (id int, {column})", "INSERT INTO endless VALUES (1, 'infinity')")
    declared, connection = pipeline("endless", "id"), to_postgres(postgres_database)
    with closing(JdbcSource(declared, connection)) as source:
        (task,) = planned(source)
        reader = SparkReader(spark, declared, connection, source.shape())

    with pytest.raises(AssertionError, match=f"not a date or time.*{column.split()[0]} infinity"):
        list(reader.read(task))


def test_a_cursor_that_holds_infinity_or_null_is_refused(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE endless (id int, at timestamptz)",
        "INSERT INTO endless VALUES (1, 'infinity'), (NULL, now())",
    )
    connection = to_postgres(postgres_database)

    with (
        closing(JdbcSource(pipeline("endless", "at"), connection)) as source,
        pytest.raises(SourceError, match="infin"),
    ):
        source.plan(PlanRequest([RangeToPlan("endless", START)], 3, 10**9))
    with closing(JdbcSource(pipeline("endless", "id"), connection)) as source, pytest.raises(ConfigError, match="NULL"):
        source.check()


def test_the_present_day_of_a_date_cursor_waits_until_it_is_over(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE daily (day date)",
        "INSERT INTO daily VALUES ('2024-01-01'), ((now() AT TIME ZONE 'Etc/GMT-14')::date)",
    )
    with closing(JdbcSource(pipeline("daily", "day"), to_postgres(postgres_database))) as source:
        plan = source.plan(PlanRequest([RangeToPlan("daily", START)], None, 10**9))

    assert [batch.records for batch in plan.batches] == [1]
    assert 0 <= datetime.now(UTC).timestamp() * 1_000_000 - plan.bounds["daily"] < 3 * MICROSECONDS_A_DAY


def test_what_is_committed_while_a_bound_stands_is_below_it(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(postgres_database, "CREATE TABLE slow (id int)", "INSERT INTO slow VALUES (5)")
    waited: list[float] = []
    with closing(psycopg2.connect(postgres_database)) as late:
        late.cursor().execute("INSERT INTO slow VALUES (3)")

        def commit_meanwhile(seconds: float) -> None:
            waited.append(seconds)
            late.commit()

        monkeypatch.setattr(planning, "time", SimpleNamespace(sleep=commit_meanwhile, time=time.time))
        with closing(JdbcSource(pipeline("slow", "id", close_wait="3s"), to_postgres(postgres_database))) as source:
            look = source.plan(PlanRequest([RangeToPlan("slow", START)], None, 1, lag_only=True))
            assert (look.bounds, waited) == ({"slow": 6}, [])
            plan = source.plan(PlanRequest([RangeToPlan("slow", START)], None, 10**9))
            again = source.plan(PlanRequest([RangeToPlan("slow", START)], None, 10**9, states=plan.states))
            nothing = source.plan(PlanRequest([RangeToPlan("slow", 6)], None, 10**9, states=plan.states))

    assert [(batch.range, batch.records) for batch in plan.batches] == [(Range(START, 6), 2)]
    assert (again.batches, nothing.batches) == (plan.batches, [])
    assert waited == [3.0]


@pytest.mark.parametrize("rows", [0, 7])
def test_a_table_that_was_made_anew_is_refused_by_whoever_reads(
    spark: SparkSession, postgres_database: str, rows: int
) -> None:
    make = "CREATE TABLE fleeting AS SELECT n AS id FROM generate_series(1, {}) AS n"
    execute(postgres_database, make.format(7))
    declared, connection = pipeline("fleeting", "id"), to_postgres(postgres_database)
    with closing(JdbcSource(declared, connection)) as source:
        before = source.partitions()
        tasks = planned(source)
        shape = source.shape()
        execute(postgres_database, "DROP TABLE fleeting", make.format(rows))
        after = source.partitions()

    (outcome,) = run_wave(spark, job_of(declared, connection, shape), Wave(1, [tasks], 60.0))

    assert [part.id for part in before] == [part.id for part in after]
    assert before[0].identity != after[0].identity
    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.sqlstate) == (ErrorType.SOURCE, "55000")
    assert "dropped or recreated" in outcome.error.message


@pytest.mark.parametrize(
    ("changes", "table", "cursor", "says"),
    [
        ({"type": "postgres"}, "t", "id", "has type 'postgres', not jdbc"),
        ({"host": "db.example"}, "t", "id", "has no JDBC URL"),
        ({"host": "jdbc:postgresql://h/d?user=a&password=hunter2"}, "t", "id", "includes a password"),
        ({"host": "jdbc:oracle:thin:scott/hunter2@h:1521:xe"}, "t", "id", "includes a password"),
        ({"host": "jdbc:oracle:thin:@h"}, "t", "id", "no driver accepts the JDBC URL"),
        ({"host": "jdbc:oracle:thin:/@wallet"}, "t", "id", "no driver accepts the JDBC URL"),
        ({"password": "wr0ng-s3cret"}, "t", "id", "password authentication failed"),
        ({}, "absent", "id", "absent cannot be read"),
        ({}, "t", "absent", "has no column absent"),
        ({}, "t", "name", "has type text"),
    ],
)
def test_what_does_not_fit_is_told_without_the_password(
    postgres_database: str, changes: dict[str, str], table: str, cursor: str, says: str
) -> None:
    execute(postgres_database, "CREATE TABLE t (id int, name text)")

    def check() -> None:
        with closing(JdbcSource(pipeline(table, cursor), to_postgres(postgres_database, **changes))) as source:
            source.check()

    with pytest.raises(CkptError, match=says) as told:
        check()

    assert not told.value.recoverable
    for secret in (PASSWORD, "hunter2", "wr0ng-s3cret"):
        assert secret not in str(told.value)


def test_a_database_that_is_not_there_is_an_outage() -> None:
    nowhere = Connection("shop", "jdbc", "jdbc:postgresql://127.0.0.1:9/x", login="a", password="b")

    with closing(JdbcSource(pipeline("t", "id"), nowhere)) as source, pytest.raises(SourceError) as told:
        source.check()

    assert (told.value.is_outage, told.value.recoverable, told.value.sqlstate) == (True, True, "08001")


def test_a_missing_jar_is_told_before_java_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    nowhere = Connection("shop", "jdbc", "jdbc:postgresql://127.0.0.1:9/x")
    gone_jar = pipeline("t", "id", jars=["/none/driver.jar"])

    with closing(JdbcSource(gone_jar, nowhere)) as source, pytest.raises(ConfigError, match="there is no file"):
        source.check()
    with closing(JdbcSource(pipeline("t", "id"), nowhere)) as source, pytest.raises(ConfigError, match="Java cannot"):
        source.check()


def test_no_log_tells_the_password_however_much_it_tells(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    execute(postgres_database, "CREATE TABLE t (id int)")

    source = JdbcSource(pipeline("t", "id"), to_postgres(postgres_database))
    with caplog.at_level(logging.DEBUG):
        source.check()
        source.close()
        gc.collect()  # Py4J tells Java of each object that is forgotten, and Java has ended

    assert PASSWORD not in caplog.text
    assert "Java server" not in caplog.text


def test_java_does_not_outlive_the_process_that_asks() -> None:
    script = f"""
import sys, time
from airflow_provider_ckpt.connectors.jdbc.jvm import Jvm
jvm = Jvm({drivers()!r})
print(jvm._process.pid, flush=True)
time.sleep(60)
"""
    asking = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert asking.stdout is not None
    java = int(asking.stdout.readline())
    os.kill(java, 0)

    asking.send_signal(signal.SIGKILL)
    asking.communicate()

    deadline = time.monotonic() + 10
    while _lives(java) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(java)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
