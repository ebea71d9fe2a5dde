"""``where`` and ``select`` give each record a verdict; an expression that raises an error rejects only its record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.sql import NEVER_RAISING, cannot_raise, literal, quote
from airflow_provider_ckpt.spark.transform.projection import project
from airflow_provider_ckpt.spark.transform.try_expressions import VALUE, try_columns
from airflow_provider_ckpt.spark.wave import check_transform
from tests.integration.spark.judging import DELIVERED, Transform
from tests.services.replication import orders_pipeline

FAILED_WHERE, FAILED_SELECT = "FilterEvaluation", "TransformEvaluation"
AB = "a int, b int"
CODEGEN = "spark.sql.codegen.wholeStage"
FACTORY = "spark.sql.codegen.factoryMode"
SUBEXPRESSIONS = "spark.sql.subexpressionElimination.enabled"


@pytest.fixture(
    params=["compiled", "expressions compiled", "interpreted", "subexpressions computed each time", "connect"]
)
def each_way(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session, evaluating expressions in each of the ways that Spark may choose; and one that is not here."""
    if request.param == "connect":
        yield from connected(request)
        return
    ways = {
        "compiled": {},
        "expressions compiled": {CODEGEN: "false"},
        "interpreted": {CODEGEN: "false", FACTORY: "NO_CODEGEN"},
        "subexpressions computed each time": {SUBEXPRESSIONS: "false"},
    }
    settings = ways[request.param]
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(params=["classic", "connect"])
def either(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """A classic session, and one on a Spark Connect server, where nobody can look into a plan."""
    if request.param == "classic":
        yield spark
    else:
        yield from connected(request)


def connected(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session on a Spark Connect server."""
    server = request.getfixturevalue("connect_server")
    session = ConnectSession(f"sc://127.0.0.1:{server.port}")
    session.conf.set("spark.sql.ansi.enabled", "true")
    yield cast("SparkSession", session)
    session.client.close()


def test_only_what_is_surely_wanted_passes_the_where(spark: SparkSession) -> None:
    wanted = Transform(spark, {"where": "a > b"}, table=AB)
    judged = wanted.rows((2, 1), (1, 2), (None, 1))
    assert [item.verdict for item in judged] == [DELIVERED, "filtered", "filtered"]
    assert [item.row for item in judged] == [{"a": 2, "b": 1}, {"a": None, "b": None}, {"a": None, "b": None}]
    assert [item.original for item in judged] == [None] * 3


def test_a_where_that_raises_rejects_that_record_alone(each_way: SparkSession) -> None:
    ratio = Transform(each_way, {"where": "a / b > 1"}, table=AB)
    judged = ratio.rows((4, 2), (4, 0), (1, 2), (9, 3))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_WHERE, "filtered", DELIVERED]
    assert (judged[1].message, judged[1].original) == ("where failed: a / b > 1", {"a": 4, "b": 0})


@pytest.mark.parametrize(
    "where",
    [
        "CASE WHEN a / b > 1 THEN true ELSE false END",
        "if(a / b > 1, true, false)",
        "coalesce(if(a / b > 1, true, NULL), false)",
        "NOT (NOT (a / b > 1))",
        "CAST(if(a / b > 1, 'true', 'false') AS boolean)",
        "a / b IN (2, 3)",
    ],
)
def test_a_where_that_the_optimizer_rewrites_raises_for_its_record_alone(each_way: SparkSession, where: str) -> None:
    judged = Transform(each_way, {"where": where}, table=AB).rows((4, 2), (4, 0), (1, 2), (9, 3))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_WHERE, "filtered", DELIVERED]


RAISING = {
    "cast of text": ("cast(t as int)", "12", "1x"),
    "cast of a date": ("cast(t as date)", "2024-02-29", "2023-02-29"),
    "overflow of a cast": ("cast(cast(t as bigint) as tinyint)", "127", "128"),
    "overflow of an addition": ("cast(t as int) + 2147483647", "0", "1"),
    "division by zero": ("10 / cast(t as int)", "5", "0"),
    "remainder by zero": ("10 % cast(t as int)", "3", "0"),
    "element out of bounds": ("split(t, ',')[1]", "a,b", "a"),
    "decimal out of range": ("cast(t as decimal(3,1))", "12.5", "123.5"),
    "a failed check": ("if(t = 'ok', t, raise_error('not ok'))", "ok", "no"),
    "inside a lambda": ("transform(split(t, ','), x -> cast(x as int))[0]", "1,2", "1,z"),
    "a date out of a pattern": ("to_timestamp(t, 'yyyy-MM-dd')", "2024-01-02", "02.01.2024"),
}


@pytest.mark.parametrize(("expression", "good", "bad"), RAISING.values(), ids=RAISING)
def test_an_expression_that_raises_rejects_that_record_alone(
    spark: SparkSession, expression: str, good: str, bad: str
) -> None:
    judged = Transform(spark, {"select": {"out": expression}}, table="t string").rows((good,), (bad,), (None,), (good,))
    assert [item.verdict for item in judged][:2] == [DELIVERED, FAILED_SELECT]
    assert judged[3].row["out"] is not None
    assert (judged[1].message, judged[1].original) == (f"select out failed: {expression}", {"t": bad})


NEVER_NULL = {
    "a default for what is not there": "coalesce(cast(t as int), 0)",
    "a struct": "named_struct('n', cast(t as int))",
    "an array": "array(cast(t as int))",
    "a list of texts": "concat_ws(',', cast(t as int))",
    "a test for null": "cast(t as int) is not null",
    "a safe comparison": "cast(t as int) <=> 12",
}
"""Expressions that cannot be null, so that Spark need not evaluate them to know that they are not."""


def test_what_can_never_be_null_may_raise_all_the_same(each_way: SparkSession) -> None:
    rows = ("12",), ("1x",), ("12",)
    for name, expression in NEVER_NULL.items():
        alone = Transform(each_way, {"select": {"out": expression}}, table="t string").rows(*rows)
        assert (name, [item.verdict for item in alone]) == (name, [DELIVERED, FAILED_SELECT, DELIVERED])
    together = Transform(each_way, {"select": NEVER_NULL, "where": "cast(t as int) <=> 12"}, table="t string")
    assert [item.verdict for item in together.rows(*rows)] == [DELIVERED, FAILED_WHERE, DELIVERED]


REWRITTEN = {
    "a null instead of a value": "nullif(cast(t as int), 0) + 1",
    "a default for it": "ifnull(nullif(cast(t as int), 0), 7)",
    "a choice": "nvl2(cast(t as int), 1, NULL)",
    "one branch": "CASE WHEN cast(t as int) > 0 THEN 'a' END",
    "a function of branches": "upper(if(cast(t as int) > 0, 'a', NULL))",
    "a sign before branches": "-if(cast(t as int) > 0, 1, NULL)",
    "a cast of branches": "cast(if(cast(t as int) > 0, '1', '2') as int)",
    "a range": "cast(t as int) between 0 and 9",
    "a list": "cast(t as int) in (1, 12, NULL)",
    "a field of a branch": "if(cast(t as int) > 0, named_struct('a', 1), NULL).a",
}
"""Expressions that Spark rewrites, or moves out of the place where they are written."""


def test_what_spark_moves_stays_under_try(each_way: SparkSession) -> None:
    judged = Transform(each_way, {"select": REWRITTEN}, table="t string").rows(("12",), ("x",), (None,))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_SELECT, DELIVERED]
    for name, expression in REWRITTEN.items():
        alone = Transform(each_way, {"select": {"out": expression}}, table="t string").rows(("12",), ("x",))
        assert (name, [item.verdict for item in alone]) == (name, [DELIVERED, FAILED_SELECT])


def test_the_message_names_the_expression_that_raised(each_way: SparkSession) -> None:
    select = {"double": "cast(a * 2 as tinyint)", "ratio": "a / b", "sum": "a + b"}
    judged = Transform(each_way, {"select": select}, table=AB).rows((1, 1), (100, 1), (1, 0), (2147483647, 1))
    assert [item.message for item in judged] == [
        None,
        "select double failed: cast(a * 2 as tinyint)",
        "select ratio failed: a / b",
        "select double failed: cast(a * 2 as tinyint)",
    ]
    assert judged[0].row == {"double": 2, "ratio": 1.0, "sum": 2}


def test_one_raising_part_used_in_many_places_is_evaluated_only_behind_its_guard(each_way: SparkSession) -> None:
    part = "cast(t as int)"
    select = {"n": part, "next": f"{part} + 1", "half": f"{part} / 2", "again": f"if({part} > 0, {part}, -{part})"}
    shared = Transform(each_way, {"where": f"{part} <> 0", "select": select}, table="t string")
    judged = shared.rows(("4",), ("x",), ("0",), ("-6",))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_WHERE, "filtered", DELIVERED]
    assert judged[3].row == {"n": -6, "next": -5, "half": -3.0, "again": 6}


def test_of_more_expressions_than_one_compiled_method_holds_the_one_that_raised_is_named(
    each_way: SparkSession,
) -> None:
    select = {f"c{number}": f"cast(a * {number} as tinyint) + coalesce(b, 0)" for number in range(1, 101)}
    judged = Transform(each_way, {"where": "a >= 0", "select": select}, table=AB).rows((1, 27), (-1, 0), (2, None))
    assert [item.verdict for item in judged] == [DELIVERED, "filtered", FAILED_SELECT]
    assert judged[0].row == {f"c{number}": number + 27 for number in range(1, 101)}
    assert judged[2].message == "select c64 failed: cast(a * 64 as tinyint) + coalesce(b, 0)"


def test_a_value_that_is_null_is_delivered(each_way: SparkSession) -> None:
    select = {"n": "try_cast(t as int)", "length": "nullif(cast(t as int), 0) + 1"}
    judged = Transform(each_way, {"select": select}, table="t string").rows(("0",), (None,), ("x",), ("4",))
    assert [item.verdict for item in judged] == [DELIVERED, DELIVERED, FAILED_SELECT, DELIVERED]
    assert [item.row for item in judged if item.verdict == DELIVERED] == [
        {"n": 0, "length": None},
        {"n": None, "length": None},
        {"n": 4, "length": 5},
    ]


def test_several_values_are_one_struct(either: SparkSession) -> None:
    select = {"pair": "(a, a / b)", "named": "(a, 'value', a / b)"}
    judged = Transform(either, {"select": select}, table=AB).rows((6, 3), (6, 0))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_SELECT]
    assert [list(judged[0].row[name].values()) for name in select] == [[6, 2.0], [6, "value", 2.0]]


def test_what_the_where_leaves_out_is_not_evaluated_further(each_way: SparkSession) -> None:
    careful = Transform(each_way, {"where": "b <> 0", "select": {"ratio": "a / b"}}, table=AB)
    judged = careful.rows((1, 0), (6, 3))
    assert [item.verdict for item in judged] == ["filtered", DELIVERED]
    assert judged[1].row == {"ratio": 2.0}


def test_a_record_that_cannot_be_decoded_reaches_no_expression(each_way: SparkSession) -> None:
    decoding = Transform(each_way, {"decode": "json", "schema": "n int", "where": "10 / n > 1", "select": {"n": "n"}})
    assert decoding.verdicts(b"{", b'{"n":0}', b'{"n":100}', b'{"n":2}', b"{}") == [
        "MessageDeserialization",
        FAILED_WHERE,
        "filtered",
        DELIVERED,
        "JsonPathNotFound",
    ]


@pytest.mark.parametrize(
    "name", ["two words", "back`tick", 'quo"te', "semi;colon", "dotted.name", "select", "größe", "1st"]
)
def test_any_column_name_passes_in_and_out(spark: SparkSession, name: str) -> None:
    column = quote(name)
    table = f"{column} int"
    assert Transform(spark, {"where": f"{column} > 0"}, table=table).rows((1,))[0].row == {name: 1}
    assert Transform(spark, {"select": {name: f"{column} + 1"}}, table=table).rows((1,))[0].row == {name: 2}


def test_text_of_every_kind_survives_in_messages(spark: SparkSession) -> None:
    expression = "cast(concat(t, '\\\\ \" \\' \\n {x} $1') as int)"
    (judged,) = Transform(spark, {"select": {"it's": expression}}, table="t string").rows(("a",))
    assert judged.message == f"select it's failed: {expression}"


@pytest.mark.parametrize(
    "expression",
    ["rand()", "uuid()", "monotonically_increasing_id()", "spark_partition_id()", "a + cast(rand() as int)"],
)
@pytest.mark.parametrize("place", ["where", "select"])
def test_a_nondeterministic_expression_is_refused(either: SparkSession, expression: str, place: str) -> None:
    keys = {"where": f"({expression}) is null"} if place == "where" else {"select": {"z": expression}}
    with pytest.raises(ConfigError, match=rf"transform\.{place}.* is nondeterministic"):
        Transform(either, keys, table=AB).plan([(1, 1)])


@pytest.mark.parametrize(
    "expression",
    [
        "row_number() over (partition by a order by b)",
        "sum(a)",
        "count(*)",
        "explode(array(a, b))",
        "(select max(id) from range(3))",
        "a in (select id from range(3))",
        "exists(select 1 from range(3) where id = a)",
        "window(cast(a as timestamp), '1 minute').start",
        "SESSION_WINDOW (cast(a as timestamp), '1 minute').end",
    ],
)
def test_an_expression_over_other_records_is_refused(either: SparkSession, expression: str) -> None:
    with pytest.raises(ConfigError, match=r"transform\.select\.z (needs other records|cannot be used)"):
        Transform(either, {"select": {"z": expression}}, table=AB).plan([(1, 1)])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"where": "nosuch > 1"}, r"transform\.where cannot be used: .*`nosuch`"),
        ({"where": "a +"}, r"transform\.where cannot be used: .*[Ss]yntax error"),
        ({"select": {"z": "nosuch_function(a)"}}, r"transform\.select\.z cannot be used: .*nosuch_function"),
        ({"select": {"z": "a), (b"}}, r"transform\.select\.z cannot be used"),
        ({"where": "array(a)"}, r"transform\.where is of type array<int> instead of boolean"),
        ({"where": "a = 1) or (1 = 1"}, r"transform\.where cannot be used: .*[Ss]yntax error"),
        ({"where": "a = 1) /* "}, r"transform\.where cannot be used"),
        ({"where": "a = 1) -- "}, r"transform\.where cannot be used: .*[Ss]yntax error"),
        ({"select": {"z": "a, b"}}, r"transform\.select\.z cannot be used: .*[Ss]yntax error"),
        ({"where": "a = 1; select 2"}, r"transform\.where cannot be used: .*[Ss]yntax error"),
        ({"where": "true AS BOOLEAN) OR CAST((false"}, r"transform\.where cannot be used: .*[Ss]yntax error"),
        ({"select": {"z": "a) + (b"}}, r"transform\.select\.z cannot be used: .*[Ss]yntax error"),
        ({"select": {"y": "a /* ", "z": "*/ + b"}}, r"transform\.select\.y cannot be used"),
        ({"select": {"z": "a as b"}}, r"transform\.select\.z cannot be used: .*[Ss]yntax error"),
        ({"select": {"y": "a", "z": "x -> x"}}, r"transform\.select\.z cannot be used: .*lambda"),
        ({"where": "x -> x"}, r"transform\.where cannot be used: .*lambda"),
        ({"where": "(x, y) -> x > y"}, r"transform\.where cannot be used: .*INTERNAL_ERROR"),
        ({"where": "a > " + "(" * 2000 + "1" + ")" * 2000}, r"transform\.where cannot be used: "),
        ({"select": {"z": "abs(" * 2000 + "a" + ")" * 2000}}, r"transform\.select\.z cannot be used: "),
    ],
)
def test_an_expression_that_cannot_work_is_a_clear_error(either: SparkSession, keys: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        Transform(either, keys, table=AB).plan([(1, 1)])
    assert "\n" not in str(raised.value)


FIT = {
    "a function of higher order": "aggregate(array(a, b), 0, (x, y) -> x + y)",
    "all columns": "to_json(struct(*))",
    "a time in words": "'now(), current_date, ' || \"date 'today'\" /* now() */",
    "a day": "date '2024-01-01'",
    "a column named like a function": "user || now || `current_date`",
    "a field named like a function": "struct(a as user).user",
    "a variable named like a function": "transform(array(a), user -> user + 1)",
    "a call with a time": "unix_timestamp('2024-01-01', 'yyyy-MM-dd')",
    "a word in a text": "'window (shut), sum(a), rand()'",
    "a name in quotes": "`window (shut)`",
    "a comment at the end": "a + b -- the sum, (now",
    "a comment before it": "/* of (both */ a + b",
    "a line break in a text": "'one\ntwo'",
    "a column named like our own variable": "unused + 1",
    "a map": "map(a, b)",
}


def test_an_expression_of_one_record_passes(either: SparkSession) -> None:
    table = "a int, b int, unused int, `window (shut)` int, user string, now string, current_date string"
    keys = {"where": "a between 0 and b", "select": FIT}
    Transform(either, keys, table=table).plan([(1, 1, 1, 1, "u", "n", "d")])


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("now()", r"now\(\)"),
        ("cast(NOW  () as string)", r"NOW\(\)"),
        ("`now`()", r"now\(\)"),
        ("date_add(current_date, a)", "current_date"),
        ("current_timestamp() > timestamp_seconds(a)", r"current_timestamp\(\)"),
        ("unix_timestamp() - a", r"unix_timestamp\(\)"),
        ("localtimestamp", "localtimestamp"),
        ("date 'today'", "date 'today'"),
        ("TIMESTAMP 'now'", "TIMESTAMP 'now'"),
        ("concat(current_user(), a)", r"current_user\(\)"),
        ("user", "user"),
        ("current_catalog()", r"current_catalog\(\)"),
        ("version()", r"version\(\)"),
    ],
)
@pytest.mark.parametrize("place", ["where", "select"])
def test_what_depends_on_the_moment_or_the_session_is_refused(
    spark: SparkSession, expression: str, named: str, place: str
) -> None:
    keys = {"where": f"({expression}) is null"} if place == "where" else {"select": {"z": expression}}
    with pytest.raises(ConfigError, match=rf"transform\.{place}(\.z)? depends on {named}, which is not the same"):
        Transform(spark, keys, table=AB).plan([(1, 1)])


@pytest.mark.parametrize(
    ("where", "kind"), [("'true'", "string"), ("a", "int"), ("null", "void"), ("if(a > b, 'true', null)", "string")]
)
def test_a_where_that_is_neither_true_nor_false_is_refused(either: SparkSession, where: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"transform\.where is of type {kind} instead of boolean"):
        Transform(either, {"where": where}, table=AB).plan([(1, 1)])


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ({"z": "null"}, r"transform\.select\.z gives void: is void"),
        ({"z": "array(null)"}, r"transform\.select\.z gives array<void>: element is void"),
        ({"z": "named_struct('a', 1, 'A', 2)"}, r"transform\.select\.z gives .*: a and A differ only in case"),
        ({"z": "make_interval(a)"}, r"transform\.select\.z gives interval: is an interval"),
        ({"z": "interval '1' day"}, r"transform\.select\.z gives interval day: is an interval"),
        ({"__verdict": "a"}, r"transform\.select: __verdict is a reserved name"),
        ({"__pos": "a"}, r"transform\.select: __pos is a reserved name"),
    ],
)
def test_an_output_that_no_sink_can_take_is_refused(spark: SparkSession, select: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Transform(spark, {"select": select}, table=AB).plan([(1, 1)])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id void", "id is void, a type whose only value is null"),
        ("id bigint, tags array<void>", "tags.element is void"),
        ("a string, a string", "has two columns a"),
        ("a string, A string", "a and A differ only in case"),
        ("s struct<a:int,b:struct<c:int,C:int>>", "s.b c and C differ only in case"),
        ("m map<string,struct<a:int,a:int>>", "m.value has two columns a"),
        ("at interval", "at is an interval"),
        ("at interval day to second", "at is an interval"),
        ("s struct<>", "s has no columns"),
        ("` ` string", "has a column without a name"),
        ("__verdict string", "__verdict is a reserved name"),
        ("__raw_value string", "__raw_value is a reserved name"),
    ],
)
@pytest.mark.parametrize("key", ["schema", "returns"])
def test_a_schema_that_no_record_can_have_is_refused(spark: SparkSession, schema: str, said: str, key: str) -> None:
    document = orders_pipeline()
    document["source"] = {"type": "files", "path": "/in"}
    document["transform"] = {"decode": "json", "schema": "id bigint"}
    document["transform"] |= {"schema": schema} if key == "schema" else {"returns": schema, "python": "json:loads"}
    job = Job(build(document).document(), SinkContext("l", "orders", 1), RecordShape(True, [("value", "binary")]), {})

    with pytest.raises(ConfigError, match=f"orders: transform.{key}: {re.escape(said)}"):
        check_transform(spark, job)


def test_a_column_named_unused_is_itself_in_every_place(spark: SparkSession) -> None:
    own = Transform(spark, {"select": {"next": "date_add(unused, 1)", "sure": "1 / n"}}, table="unused date, n int")
    judged = own.rows((date(2024, 1, 1), 1), (date(2024, 1, 1), 0))
    assert [item.verdict for item in judged] == [DELIVERED, FAILED_SELECT]
    assert judged[1].message == "select sure failed: 1 / n"


def test_a_schema_that_does_not_parse_is_a_clear_error(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"transform\.schema does not parse: .*; ?|Write it as Spark DDL"):
        Transform(spark, {"decode": "json", "schema": "id bigint, at nosuchtype"}).plan([(bytearray(b"{}"),)])


def test_no_shuffle_and_no_sort_stand_in_the_way(spark: SparkSession) -> None:
    keys = {"decode": "json", "schema": "n int, t string", "where": "n > 0", "select": {"t": "upper(t)"}}
    frame = Transform(spark, keys).plan([(bytearray(b"{}"),)])
    nodes = {
        line.strip("+-:* ()0123456789").split()[0]
        for line in frame._jdf.queryExecution().executedPlan().toString().splitlines()
    }
    assert nodes == {"Project", "Scan"}


def test_an_expression_is_evaluated_only_where_its_condition_holds(either: SparkSession) -> None:
    pipeline = build(orders_pipeline())
    frame = either.sql("select * from values ('1', true), ('x', true), (null, true), ('1', false) as v(t, asked)")
    expressions = {"n": ("asked", "cast(t as int)"), "next": ("asked AND n IS NOT NULL", "cast(t as int) + 1")}
    tried = project(frame, try_columns(frame, expressions, pipeline), pipeline).collect()
    assert [(row.n and row.n[VALUE], row.next and row.next[VALUE]) for row in tried] == [
        (1, 2),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert [row.n is None for row in tried] == [False, True, False, True]


VALUES = {
    "string": ["''", "'\u00e9\u00df\u0130'", "CAST(x'ff00c3' AS string)", "repeat('x', 10000)"],
    "binary": ["x''", "x'ff00c3'"],
    "boolean": ["true"],
    "tinyint": ["-128"],
    "bigint": ["-9223372036854775807"],
    "double": ["'NaN'", "'-Infinity'"],
    "decimal(38,9)": ["-99999999999999999999999999999.999999999"],
    "date": ["date'-9999-01-01'", "date'+99999-12-31'"],
    "timestamp": ["timestamp'-9999-01-01 00:00:00'", "timestamp'+99999-12-31 23:59:59.999999'"],
    "timestamp_ntz": ["timestamp_ntz'+99999-12-31 23:59:59.999999'"],
    "interval": ["make_interval(1, 2, 3, 4, 5, 6, 7.8)"],
    "interval day to second": ["interval '1 02:03:04' day to second"],
    "variant": ["parse_json('{\"a\": [1]}')"],
    "array<int>": ["array(1, NULL)"],
    "map<string,int>": ["map('a', 1)"],
    "struct<a:int>": ["named_struct('a', 1)"],
}


@pytest.mark.parametrize("each_way", ["interpreted"], indirect=True)
def test_a_harmless_function_raises_for_no_value_of_a_type_that_it_takes(each_way: SparkSession) -> None:
    values = each_way.sql("SELECT " + ", ".join(f"array({', '.join(VALUES[kind])}) AS `{kind}`" for kind in VALUES))
    rows = values.selectExpr("explode(sequence(0, 3)) AS n", "*").repartition(2)
    rows = rows.selectExpr(*(f"CAST(get(`{kind}`, n) AS {kind}) AS `{kind}`" for kind in VALUES))

    calls = [call for name in NEVER_RAISING for kind in VALUES if taken(rows, call := f"{name}(`{kind}`)")]

    assert len(calls) >= len(NEVER_RAISING) * 10
    assert all(cannot_raise(call) for call in calls)
    evaluated = [f"hash({call})" for call in calls]
    assert len(rows.selectExpr(*evaluated).collect()) == 4


def taken(frame: DataFrame, expression: str) -> bool:
    """Return whether Spark accepts an expression."""
    try:
        frame.selectExpr(expression)
    except AnalysisException:
        return False
    return True


def test_a_literal_is_the_text_it_was_made_from(spark: SparkSession) -> None:
    text = "a'b\"c\\d\ne\rf\tg`h${x}"
    assert spark.sql(f"select {literal(text)}").collect()[0][0] == text


def test_a_comment_at_the_end_of_a_where_ends_with_it(either: SparkSession) -> None:
    own = Transform(either, {"where": "a > 1 -- not 1", "select": {"z": "a -- as it is"}}, table=AB)

    judged = own.rows((1, 0), (2, 0))

    assert [item.verdict for item in judged] == ["filtered", DELIVERED]
    assert judged[1].row == {"z": 2}


def test_a_comment_at_the_end_of_a_schema_ends_with_it(spark: SparkSession) -> None:
    own = Transform(spark, {"decode": "json", "schema": "id bigint -- the key"})

    judged = own.rows((bytearray(b'{"id": 1}'),), (bytearray(b'{"id": x}'),))

    assert [item.verdict for item in judged] == [DELIVERED, "MessageDeserialization"]
