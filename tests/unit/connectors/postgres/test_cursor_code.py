"""Code that fills a cursor column: declarations in nested blocks, bounded evaluation, and short messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.postgres.coarse_values import is_coarse
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind
from airflow_provider_ckpt.connectors.postgres.cursor_code import CursorAssignment, cursor_assignments
from airflow_provider_ckpt.connectors.postgres.origin_tables import OriginColumn
from airflow_provider_ckpt.connectors.postgres.sql_code import TriggerCode

COLUMNS = [OriginColumn(1, 1, "id")]


class Catalog:
    """Answers for a table whose cursor is filled by one trigger or default; stores the evaluated expressions."""

    def __init__(self, *, trigger: str = "", default: str = "") -> None:
        self._trigger = trigger
        self._default = default
        self.evaluated: list[str] = []

    def __call__(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if "statement_timeout" in statement:
            self.evaluated.append(statement.partition("; ")[2])
            return [("own",)]
        if "pg_attrdef" in statement:
            return [(self._default, False)] if self._default else []
        if "pg_trigger" in statement:
            return [("fill", "source", "public", "plpgsql", self._trigger, "", 1)] if self._trigger else []
        if "{own}" in statement.format(*values) or any("own" in str(value) for value in values):
            return [(7,)] if "relkind = 'S'" in statement and "wanted (name)" in statement else []
        return []


@pytest.mark.parametrize(
    "body",
    [
        "BEGIN DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; END; RETURN NEW; END",
        "BEGIN BEGIN DECLARE n CONSTANT bigint DEFAULT nextval('own'); BEGIN NEW.id := n; END; END; END",
        "BEGIN IF NEW.id = 0 THEN DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; END; END IF; END",
        "BEGIN IF a THEN NULL; ELSE DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; END; END IF; END",
        "BEGIN LOOP DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; EXIT; END; END LOOP; END",
        "BEGIN <<inside>> DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; END; END",
        "BEGIN NULL; EXCEPTION WHEN OTHERS THEN DECLARE n int := nextval('own'); BEGIN NEW.id := n; END; END",
        "DECLARE a int; exception int := 1; BEGIN NEW.id := a; DECLARE x int := exception; BEGIN a := x; END; END",
    ],
)
def test_the_first_declaration_of_a_nested_block_is_read(body: str) -> None:
    (name,) = {word for word in ("n", "x") if f"DECLARE {word} " in body}

    assert name in {name for item in TriggerCode(body).assigning_statements("id") for name in item.assigned}


@pytest.mark.parametrize(
    "body",
    [
        "DECLARE c CURSOR FOR SELECT nextval('own'); BEGIN OPEN c; FETCH c INTO NEW.id; RETURN NEW; END",
        "DECLARE c NO SCROLL CURSOR (k int) FOR SELECT nextval('own'); BEGIN OPEN c(1); FETCH c INTO NEW.id; END",
        "DECLARE c refcursor; BEGIN OPEN c FOR SELECT nextval('own'); FETCH c INTO NEW.id; RETURN NEW; END",
    ],
)
def test_the_query_of_a_cursor_variable_is_read(body: str) -> None:
    assert any("nextval" in item.text for item in TriggerCode(body).assigning_statements("id"))


@pytest.mark.parametrize(
    "argument",
    [
        "format('%500000000s', '')",
        "format('%-500000000s', '')",
        "format('%--500000000s', '')",
        "format('%1$500000000s', '')",
        "format('%*s', '500000000', '')",
        "format('%1$*2$s', '', '500000000')",
        "format('%0500000000s'::text, '')",
        "format('%5' || '00000000s', '')",
        "format(('%500000000s'), '')",
        "format(lower('%500000000S'), '')",
        "concat('own', format(concat('%5', '00000000s'), ''))",
        "format(pg_get_serial_sequence('source', 'id'), '')",
        "quote_ident(" * 40 + "'\"'" + ")" * 40,
        "format('%1$s%1$s%1$s%1$s', " * 20 + "'own'" + ")" * 20,
        "concat_ws('x', '', '', '', '', " * 20 + "'own'" + ")" * 20,
        r"'\' || pg_sleep(9) || '\'",
        "repeat('x', 500000000)",
        "lpad('x', 500000000)",
    ],
)
def test_an_expression_whose_value_can_be_long_is_not_evaluated(argument: str) -> None:
    catalog = Catalog(trigger=f"BEGIN NEW.id := nextval({argument}); RETURN NEW; END")

    (found,) = cursor_assignments(catalog, COLUMNS)

    assert not catalog.evaluated
    assert found.unreadable is not None or found.sequences


@pytest.mark.parametrize(
    "argument",
    [
        "format('%I', TG_TABLE_NAME || '_seq')::regclass",
        "format('%I.%I', TG_TABLE_SCHEMA, lower(TG_TABLE_NAME) || '_id_seq')",
        "format('%s_%s_%s_seq', lower('a'), lower('b'), lower('c'))",
        "format('%1$s_%10s_500000000'::text, 'a', 'b')",
        "concat_ws('_', lower('a'), 'b', 'seq')",
        "pg_get_serial_sequence('source', 'id')",
        "'own' || '%500000000s'",
    ],
)
def test_others_are_evaluated_with_a_time_limit_and_without_regclass(argument: str) -> None:
    catalog = Catalog(trigger=f"BEGIN NEW.id := nextval({argument}); RETURN NEW; END")

    (found,) = cursor_assignments(catalog, COLUMNS)

    assert len(catalog.evaluated) == 1
    assert "regclass" not in catalog.evaluated[0]
    assert found.sequences == {7}


class ServerError(Exception):
    pgcode = "57014"


@pytest.mark.parametrize("error", [ServerError("canceling statement due to statement timeout")])
def test_an_expression_that_the_server_cannot_evaluate_is_unreadable(error: Exception) -> None:
    class Failing(Catalog):
        def __call__(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            if "statement_timeout" in statement:
                raise error
            return super().__call__(statement, values)

    (found,) = cursor_assignments(Failing(trigger="NEW.id := nextval(concat('a', 'b'))"), COLUMNS)

    assert found.unreadable is not None


@pytest.mark.parametrize("name", ["a.b.c", "16385", "a b"])
def test_a_constant_that_is_no_plain_name_is_unreadable(name: str) -> None:
    (found,) = cursor_assignments(Catalog(trigger=f"NEW.id := nextval('{name}')"), COLUMNS)

    assert found.unreadable is not None


def test_messages_quote_two_hundred_characters_of_code() -> None:
    long = " + k\n" * 10_000

    (by_trigger,) = cursor_assignments(Catalog(trigger=f"NEW.id := nextval(k{long})"), COLUMNS)
    (by_statement,) = cursor_assignments(Catalog(trigger=f"EXECUTE k{long} INTO NEW.id"), COLUMNS)
    (by_default,) = cursor_assignments(Catalog(default=f"nextval(k{long})"), COLUMNS)

    assert by_trigger.unreadable is not None
    assert by_statement.unreadable is not None
    assert "(k + k + k" in by_trigger.unreadable
    assert by_trigger.unreadable.endswith("...)")
    assert max(len(by_trigger.unreadable), len(by_statement.unreadable), len(by_default.label)) < 300


@pytest.mark.parametrize(
    ("default", "evaluated"),
    [
        ("now()", True),
        ("(timezone('utc'::text, now()))::timestamp(3) without time zone", True),
        ("date_trunc('hour'::text, CURRENT_TIMESTAMP)", True),
        ("to_timestamp(EXTRACT(epoch FROM now()))", True),
        ("now() + (length(repeat('x'::text, 500000000)) * '1 sec'::interval)", False),
        ("date_trunc('hour'::text, now() + ((pg_sleep(9) IS NULL)::int * '1 sec'::interval))", False),
    ],
)
def test_a_default_is_evaluated_only_with_functions_of_time(default: str, *, evaluated: bool) -> None:
    catalog = Catalog()
    assignment = CursorAssignment("its default", [default], [default], own=True)

    coarse = is_coarse(catalog_of_times(catalog), assignment, CursorKind.TIMESTAMPTZ, -1)

    assert bool(catalog.evaluated) is evaluated
    if not evaluated:
        assert coarse is ("date_trunc" in default)


def catalog_of_times(catalog: Catalog) -> Any:
    def fetch(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        catalog(statement, values)
        return [(1_700_000_000_123_457,)]

    return fetch
