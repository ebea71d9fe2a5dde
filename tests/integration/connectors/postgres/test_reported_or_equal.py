"""Edge values of every Spark SQL type in every type of column: a value arrives unchanged, or an error is reported."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.integration.connectors.postgres.test_writer import CONTEXT, Lane, delivered
from tests.services.tables import execute

COLUMNS = (
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "numeric(6,2)", "numeric(38,0)", "numeric(30,10)",
    "numeric(5,-2)", "text", "varchar(5)", "char(5)", "name", "citext", "bytea", "date", "timestamp", "timestamp(0)",
    "timestamp(6)", "timestamptz", "timestamptz(3)", "time(0)", "interval(0)", "uuid", "json", "jsonb", "money", "inet",
    "bit(3)", "varbit(3)", "oid", "cents", "short",
)  # fmt: skip
_WITHOUT_LENGTH = {"cents": "numeric", "short": "text", "name": "text", "char": "bpchar", "bit": '"bit"'}
_NOON = datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)
_TIMES = [_NOON, _NOON + timedelta(microseconds=1), _NOON + timedelta(milliseconds=1), _NOON - timedelta(days=30_000)]
_FLOAT = struct.unpack("f", struct.pack("f", 0.1))[0]
VALUES: dict[str, Sequence[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 0, 127],
    "smallint": [-(2**15), 7, 2**15 - 1],
    "int": [-(2**31), 16_777_217, 2**31 - 1],
    "bigint": [-(2**63), 2**53 + 1, 1, 150, 2**63 - 1],
    "float": [_FLOAT, 1.0, 16_777_216.0, struct.unpack("f", struct.pack("f", 3.4e38))[0]],
    "double": [0.1, 0.1 + 0.2, 1.0, 2.5, 2.0**53 + 2, 1e300, 123_456_789.123_456_78],
    "decimal(10,0)": [Decimal(1), Decimal(9_999_999_999), Decimal(150)],
    "decimal(38,0)": [Decimal(1), Decimal(10**38 - 1)],
    "decimal(12,4)": [Decimal("1.0000"), Decimal("1.0050"), Decimal("0.0001"), Decimal("12345678.9999")],
    "decimal(38,18)": [Decimal("1." + "0" * 17 + "1"), Decimal(100)],
    "binary": [b"", b"\x00\xff", b"text"],
    "date": [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "timestamp": _TIMES,
    "timestamp_ntz": [at.replace(tzinfo=None) for at in _TIMES],
    "string": [
        "", "a", "a ", "abcde", "abcde   ", "abcdefgh", "1", "1.5", "1.005", "0.123456789012345678", "150", "1e3",
        "2024-02-29", "12:00:00.6", "1 day 0.5 seconds", "{}", "101", "1011", "10.0.0.1",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "n" * 80,
    ],
    "array<int>": [[1, 2]],
    "struct<a:int>": [{"a": 1}],
    "map<string,int>": [[("a", 1)]],
}  # fmt: skip


@pytest.fixture
def database(postgres_database: str) -> str:
    """A database with types of its own."""
    execute(
        postgres_database,
        "CREATE EXTENSION citext",
        "CREATE DOMAIN cents AS numeric(10,2)",
        "CREATE DOMAIN short AS varchar(3)",
    )
    return postgres_database


def _refused(dsn: str, kind: str, columns: Sequence[str] = ("x",)) -> list[str | None]:
    """Return what the sink says of each column if rows of that kind are to go into it."""
    sink = PostgresSink(pipeline(), connection(dsn), SinkContext(CONTEXT.ledger, "orders"))
    with closing(sink):
        return [_refusal(sink, column, kind) for column in columns]


def _refusal(sink: PostgresSink, column: str, kind: str) -> str | None:
    try:
        sink.check_columns([("n", "int"), (column, kind)])
    except ConfigError as error:
        return str(error)
    return None


def _is_equal(value: Any, stored: str, *, same: bool) -> bool:
    """Return whether the text stored in the target represents the value.

    :param same: whether the target's type, without a length, makes the same of the value's text
    """
    if isinstance(value, str):
        return same
    if isinstance(value, bool):
        return stored in (str(value).lower(), str(value)[0].lower())
    if isinstance(value, float):
        return float(stored) == value or struct.pack("f", float(stored)) == struct.pack("f", value)
    if isinstance(value, int | Decimal):
        return Decimal(stored) == value
    if isinstance(value, bytes):
        return stored == "\\x" + value.hex()
    if isinstance(value, datetime):
        found = datetime.fromisoformat(stored)
        return found.replace(tzinfo=UTC) == value.replace(tzinfo=UTC)
    return datetime.fromisoformat(stored).date() == date.fromisoformat(str(value))


@pytest.mark.parametrize("kind", VALUES)
def test_told_or_equal(database: str, kind: str) -> None:
    """Each row has a value in one column of one table, so that no column's dead letters hide another's."""
    values, names = VALUES[kind], {f"x{at}": column for at, column in enumerate(COLUMNS)}
    execute(database, f"CREATE TABLE target (n int, {', '.join(' '.join(item) for item in names.items())})")
    told = dict(zip(names, _refused(database, kind, list(names)), strict=True))
    for name, refusal in told.items():
        assert refusal is None or (name in refusal and "transform.select" in refusal)
    accepted = [name for name in names if told[name] is None]
    assert accepted or kind.startswith(("array", "struct", "map"))

    sent = [(name, value) for name in accepted for value in values]
    with Lane(database) as lane:
        rows = {name: pa.array([v if to == name else None for to, v in sent], to_arrow(kind)) for name in accepted}
        if accepted:
            assert delivered(lane.send(n=pa.array(range(len(sent)), pa.int32()), **rows))
        dead = {position for position, _ in lane.dead_letters()}

    different, arrived = [], set()
    for name in accepted:
        plain = names[name].partition("(")[0]
        whole = _WITHOUT_LENGTH.get(plain, plain)
        first = accepted.index(name) * len(values)
        compares = kind == "string" and plain != "json"
        stored = execute(
            database,
            f"SELECT n, {name}::text, {f'{name} = ((%s)::text[])[n - {first} + 1]::{whole}' if compares else 'true'}"
            f" FROM target WHERE {name} IS NOT NULL",
            parameters=[list(values)] if compares else None,
        )
        arrived |= {n for n, *_ in stored}
        different += [
            (names[name], sent[n][1], text) for n, text, same in stored if not _is_equal(sent[n][1], text, same=same)
        ]
    assert arrived == set(range(len(sent))) - dead
    assert different == []


@pytest.mark.parametrize(
    ("kind", "column", "instead"),
    [
        ("bigint", "float8", "cast(x as double)"),
        ("double", "numeric(12,4)", "cast(x as decimal(12,4))"),
        ("double", "numeric", "cast(x as decimal(38,18))"),
        ("decimal(12,4)", "numeric(6,2)", "cast(x as decimal(6,2))"),
        ("decimal(12,4)", "float8", "cast(x as double)"),
        ("double", "float4", "cast(x as float)"),
        ("double", "int4", "cast(x as int)"),
        ("timestamp", "date", "cast(x as date)"),
        ("timestamp", "time", "cast(x as string)"),
        ("struct<a:int>", "jsonb", "to_json(x)"),
    ],
)
def test_a_type_that_is_too_small_is_refused_with_what_to_write(
    postgres_database: str, kind: str, column: str, instead: str
) -> None:
    execute(postgres_database, f"CREATE TABLE target (n int, x {column})")

    told = _refused(postgres_database, kind)[0] or ""

    assert f"x is {kind} in the rows" in told
    assert f"write x: {instead}" in told
    accepted = {"to_json(x)": "string", "cast(x as string)": "string"}.get(instead, instead[len("cast(x as ") : -1])
    assert _refused(postgres_database, accepted) == [None]


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [
        ("numeric(6,2)", "1.005", "1.00"),
        ("varchar(3)", "abc ", "abc"),
        ("timestamp(0)", datetime(2024, 1, 1, 0, 0, 0, 500), datetime(2024, 1, 1)),
        ("time(0)", "12:00:00.6", "12:00:00"),
        ("name", "n" * 64, "n" * 63),
        ("numeric(10,2)[]", "{1.25,1.555}", "{1.25,NULL}"),
        ("numeric(10,2)[]", "{{1.25},{1.555}}", "[0:0]={1.2}"),
        ("numeric(3,1)[]", "{0.25}", "{ 0.2 }"),
        ("cents[]", "{1.555}", "{1.55}"),
        ("moments[]", '{"2024-01-01 10:00:00.5"}', '{"2024-01-01 10:00:00"}'),
        ("prices", "{1.555}", "{1.55}"),
        ("varchar(3)[]", "{abc,abcd}", '{abc,"a,b"}'),
        ("name[]", f"{{{'n' * 64}}}", f"{{{'n' * 63}}}"),
        ("float4[]", "{16777217}", "{16777216,1.50,NaN}"),
        ("float8[]", "{9007199254740993}", "{9007199254740992,0.10,-Infinity}"),
        ("timestamp(0)[]", '{"2024-01-01 10:00:00.5"}', '{"2024-01-01 10:00:00",2024-01-01T10:00:00}'),
        ("timestamp[]", '{"2024-01-01 10:00:00+02"}', '{"2024-01-01 10:00:00 BC"}'),
        ("timestamp[]", '{"2024-01-01 10:00:00.1234567"}', '{"2024-01-01 10:00:00.1234560",infinity}'),
        ("timestamptz[]", '{"2024-01-01 10:00:00.1234567+02"}', '{"2024-01-01 10:00:00.123456+02"}'),
        ("date[]", '{"2024-01-01 10:00:00"}', "{2024-01-01}"),
        ("bit(3)[]", "{1011}", "{101}"),
        ('"char"', "abcd", "a"),
        ('"char"[]', "{abcd}", "{a,b}"),
        ("money", "1.555", "1.55"),
        ("money", "$1,001.555", "$1,001.55"),
        ("money[]", "{1.555}", "{$1.55}"),
        ("time", "10:00:00+02", "10:00:00"),
        ("time", "10:00:00 EST", "10:00 AM"),
        ("time", "2024-01-01 10:00:00", "T10:00:00"),
        ("time", "10:00:00.1234567", "10:00:00.123456"),
        ("timetz", "10:00:00.1234567+02", "10:00:00+02"),
        ("interval", "0.1234567 seconds", "1 day 0.123456 seconds"),
        ("daterange", '["2024-01-01 10:00:00","2024-01-02 10:00:00")', "[2024-01-01,2024-01-02]"),
        ("daterange[]", '{"[2024-01-01 10:00,2024-01-02 10:00)"}', '{"[2024-01-01,2024-01-02)"}'),
        ("tsrange", '["2024-01-01 10:00:00+02","2024-01-02 10:00:00+02")', '["2024-01-01 10:00:00",)'),
        ("tstzrange", '["2024-01-01 10:00:00.1234567+02",)', '["2024-01-01 10:00:00+02",)'),
        ("floats", "[0,9007199254740993)", "[0,0.5)"),
        ("oid", "-1", "007"),
        ("oid[]", "{-1}", "{4294967295}"),
        ("xid", "-1", "4294967295"),
        ("point", "(0.12345678901234567,2)", "(0.5, 2)"),
        ("polygon", "((0,0),(1,9007199254740993))", "((0,0),(1,1.0))"),
        ("pair", "(1.555,a)", "(1.55,a)"),
        ("pair[]", '{"(1.555,a)"}', '{"(1.55,a)"}'),
    ],
)
def test_a_value_that_would_be_rounded_or_cut_becomes_a_dead_letter(
    database: str, column: str, value: Any, kept: Any
) -> None:
    execute(
        database,
        "CREATE DOMAIN moments AS timestamp(0)",
        "CREATE DOMAIN prices AS numeric(10,2)[]",
        "CREATE TYPE floats AS RANGE (subtype = float8)",
        "CREATE TYPE pair AS (a numeric(10,2), b text)",
        f"CREATE TABLE target (x {column})",
    )
    with Lane(database) as lane:
        assert delivered(lane.send(x=pa.array([kept, value, kept])))

        assert len(lane.rows("x::text")) == 2
        assert lane.dead_letters() == [(1, "22000")]
        (told,) = execute(lane.dsn, "SELECT error FROM ckpt_sink_dead_letter")
        assert told[0].startswith("column x cannot keep all of ")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("int[]", ["{1,2}", "{ 1, 2 }", "{}", "{NULL}", None]),
        ("text[]", ["{a,b}", '{"a b",""}', "{NULL}"]),
        ("jsonb[]", ['{"{\\"a\\": 1}"}']),
        ("uuid[]", ["{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"]),
        ("bool[]", ["{yes,f}"]),
        ("inet", ["10.0.0.1/32"]),
        ("int4range", ["[1,5]", "empty"]),
        ("numrange", ["[1.50,2]"]),
        ("int4multirange", ["{[1,5]}"]),
        ("hstore", ["a=>1", '"a"=>"1"']),
        ("tsvector", ["the quick fox"]),
        ("tsquery", ["fox & quick"]),
        ("regclass", ["pg_class"]),
        ("int2vector", ["1 2"]),
        ("oidvector", ["1 2"]),
        ("money", ["$1.50", "1.5", "-1"]),
        ("time", ["12:00", "12:00:00.6", "allballs", "12:00 PM"]),
        ("interval", ["P1D", "1.5 days", "1 day ago"]),
        ("timestamp[]", ['{"2024-01-01 10:00","2024-01-01 10:00 PM"}']),
        ("box", ["((1,1),(0,0))"]),
        ("pair", ["(1,a)", '(,"a b")']),
    ],
)
def test_another_spelling_of_a_value_is_no_loss(database: str, column: str, values: Sequence[str | None]) -> None:
    execute(
        database,
        "CREATE EXTENSION hstore",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE target (n int, x {column})",
    )
    with Lane(database) as lane:
        assert delivered(lane.send(n=pa.array(range(len(values)), pa.int32()), x=pa.array(values, pa.string())))

        assert (lane.dead_letters(), len(lane.rows("n"))) == ([], len(values))


def test_jsonb_keeps_the_last_of_several_values_of_one_key(postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE target (x jsonb)")
    with Lane(postgres_database) as lane:
        assert delivered(lane.send(x=pa.array(['{"b": 1, "a":2, "b": 3}'])))

        assert lane.rows("x::text") == [('{"a": 2, "b": 3}',)]
