"""Keys that differ in the source but are equal in the target: the last record of a batch wins, and no run halts."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.postgres.bad_row_isolation import IsolatingRowWriter
from tests.integration.connectors.postgres.test_writer import Lane, delivered
from tests.services.tables import execute

_MICROSECONDS = pa.timestamp("us")

COARSER: dict[str, tuple[str, Any, Sequence[str]]] = {
    "numeric that rounds": ("numeric(10,2)", ["1.001", "1.004", "2.005", "2.01"], ["1.00|b", "2.01|d"]),
    "numeric that rounds decimals": (
        "numeric(10,2)",
        pa.array([Decimal("1.001"), Decimal("1.004"), Decimal("2.005"), Decimal("2.010")]),
        ["1.00|b", "2.01|d"],
    ),
    "numeric that rounds to tens": ("numeric(3,-1)", [11, 12, 18, 20], ["10|b", "20|d"]),
    "citext": ("citext", ["A", "a", "b", "B"], ["a|b", "B|d"]),
    "a collation without case": ('text COLLATE "nocase"', ["A", "a", "b", "B"], ["a|b", "B|d"]),
    "a column of a domain": ("cents", ["1.001", "1.004", "2.005", "2.01"], ["1.00|b", "2.01|d"]),
    "char that is padded": ("char(4)", ["a", "a ", "b  ", "b"], ["a|b", "b|d"]),
    "varchar that drops blanks": ("varchar(2)", ["ab", "ab  ", "cd ", "cd"], ["ab|b", "cd|d"]),
    "timestamp of whole seconds": (
        "timestamp(0)",
        pa.array([0, 400_000, 1_600_000, 2_400_000], _MICROSECONDS),
        ["1970-01-01 00:00:00|b", "1970-01-01 00:00:02|d"],
    ),
    "time zones of one instant": (
        "timestamptz",
        ["2024-01-01 00:00+00", "2024-01-01 01:00+01", "2024-01-02 00:00+00", "2024-01-02 02:00+02"],
        ["2024-01-01 00:00:00+00|b", "2024-01-02 00:00:00+00|d"],
    ),
    "real": ("real", [1.00000001, 1.0, 2.0, 2.00000001], ["1|b", "2|d"]),
    "an array of rounded numbers": (
        "numeric(10,2)[]",
        ["{1.001}", "{1.004}", "{2.005}", "{2.01}"],
        ["{1.00}|b", "{2.01}|d"],
    ),
    "documents": ("jsonb", ['{"a":1}', '{"a": 1}', "[1,2]", "[1, 2]"], ['{"a": 1}|b', "[1, 2]|d"]),
    "whole numbers": ("int", ["1", " 1", "2", "02"], ["1|b", "2|d"]),
}  # fmt: skip

_MADE = (
    "CREATE EXTENSION citext",
    "CREATE DOMAIN cents AS numeric(10,2)",
    "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
)


@pytest.fixture
def database(postgres_database: str) -> str:
    """A database with types that are coarser than text."""
    execute(postgres_database, *_MADE)
    return postgres_database


@pytest.mark.parametrize("bad", [False, True], ids=["all at once", "beside a bad record"])
@pytest.mark.parametrize(("column", "keys", "stored"), COARSER.values(), ids=COARSER)
def test_keys_that_are_one_in_the_target_leave_the_last_record(
    database: str, column: str, keys: Any, stored: Sequence[str], bad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not bad and not column.endswith("[]"):
        monkeypatch.delattr(IsolatingRowWriter, "write_each")  # the fast way is enough
    execute(database, f"CREATE TABLE target (k {column} PRIMARY KEY, v text NOT NULL)")
    with Lane(database, sink={"mode": "upsert", "key": ["k"]}) as lane:
        versions: list[str | None] = ["a", "b", "c", "d"]
        if bad:
            first = pa.array(keys)[:1]
            keys, versions = pa.concat_arrays([pa.array(keys), first]), [*versions, None]
        assert delivered(lane.send(k=keys, v=versions))

        rows = execute(database, "SET timezone = 'UTC'; SELECT k::text || '|' || v FROM target ORDER BY v")
        assert [row.casefold() for (row,) in rows] == [row.casefold() for row in stored]
        assert [state for _, state in lane.dead_letters()] == ["23502"] * bad


def test_a_text_that_only_its_length_tells_apart_is_told_and_not_merged(database: str) -> None:
    execute(database, "CREATE TABLE target (k varchar(2) PRIMARY KEY, v text)")
    with Lane(database, sink={"mode": "upsert", "key": ["k"]}) as lane:
        assert delivered(lane.send(k=["ab", "abc"], v=["a", "b"]))

        assert lane.rows() == [("ab", "a")]
        assert lane.dead_letters() == [(1, "22001")]


def test_a_key_that_a_trigger_makes_coarser_leaves_the_last_record(database: str) -> None:
    execute(
        database,
        "CREATE TABLE target (k text PRIMARY KEY, v text)",
        "CREATE FUNCTION lower_key() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.k := lower(NEW.k); RETURN NEW; END'",
        "CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION lower_key()",
    )
    with Lane(database, sink={"mode": "upsert", "key": ["k"]}) as lane:
        assert delivered(lane.send(k=["A", "b", "a", "B"], v=["1", "2", "3", "4"]))

        assert lane.rows() == [("a", "3"), ("b", "4")]
        assert lane.dead_letters() == []


def test_the_index_decides_where_its_collation_is_another_than_the_column_s(database: str) -> None:
    execute(
        database,
        "CREATE TABLE target (k text NOT NULL, v text)",
        'CREATE UNIQUE INDEX ON target (k COLLATE "nocase")',
    )
    with Lane(database, sink={"mode": "upsert", "key": ["k"]}) as lane:
        assert delivered(lane.send(k=["A", "a", "b"], v=["1", "2", "3"]))

        assert lane.rows() == [("a", "2"), ("b", "3")]


def test_of_two_indexes_the_coarser_one_decides(database: str) -> None:
    execute(
        database,
        "CREATE TABLE target (k text PRIMARY KEY, v text)",
        'CREATE UNIQUE INDEX ON target (k COLLATE "nocase")',
    )
    with Lane(database, sink={"mode": "upsert", "key": ["k"]}) as lane:
        assert delivered(lane.send(k=["A", "a", "b"], v=["1", "2", "3"]))

        assert lane.rows() == [("A", "2"), ("b", "3")]


def test_a_text_too_long_for_a_domain_is_told_and_not_cut(database: str) -> None:
    execute(database, "CREATE DOMAIN short AS varchar(3)", "CREATE TABLE target (id int, s short)")
    with Lane(database) as lane:
        assert delivered(lane.send(id=["1", "2"], s=["abc", "abcdef"]))

        assert lane.rows() == [(1, "abc")]
        assert lane.dead_letters() == [(1, "22001")]
