"""The time to analyse code that fills a cursor column grows linearly with the length of the code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.postgres.coarse_values import is_coarse
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind
from airflow_provider_ckpt.connectors.postgres.cursor_code import CursorAssignment, cursor_assignments
from airflow_provider_ckpt.connectors.postgres.origin_tables import OriginColumn

LENGTH = 256 * 1024
"""Length in characters of the longest code that is read."""

SECONDS = 5.0
"""Seconds of processor time for the longest code."""

MEASURABLE = 0.01
"""Seconds below which a time says nothing."""

COLUMNS = [OriginColumn(1, 1, "id")]

SHAPES = {
    "types without a value": ("", "x timestamp ", ""),
    "declarations without a value": ("", "declare x timestamp ", ""),
    "declarations with open parentheses": ("", "declare x numeric(", ""),
    "declarations in one list": ("declare ", "a int := b;", "new.id := a"),
    "declarations in nested blocks": ("", "begin declare a int := b ", ""),
    "conditions of nested blocks": ("", "if a then declare b ", "int := c"),
    "declarations of cursors": ("", "declare c no scroll cursor ", ""),
    "openings of cursors": ("", "open c ", ""),
    "defaults without a type": ("", "declare x default", ""),
    "one word": ("", "a", ""),
    "words": ("", "a ", ""),
    "fields": ("begin ", "a.", ""),
    "fields of functions": ("", "a.", "*"),
    "subscripts": ("begin ", "a[", ""),
    "assignments of subscripts": ("", "begin new[", ""),
    "begin": ("", "begin ", ""),
    "labels": ("", ">>", ""),
    "into": ("select x ", "into ", ""),
    "a list of targets": ("select x into ", "a, ", "1"),
    "a query with a list of targets": ("select into ", "a, ", "1"),
    "queries with lists of targets": ("", "select into a,b,", ""),
    "queries without a target": ("", "select ", ""),
    "queries with a target": ("", "select x into id ", ""),
    "loops": ("", "for a, ", ""),
    "a loop with many variables": ("for ", "a,for ,", ""),
    "returns": ("", "return ", ""),
    "aliases": ("", "x alias for new;x.id := 1;", ""),
    "quotes never closed": ("", "'' '", ""),
    "an odd number of quotes": ("'", "''", ""),
    "quotes behind words": ("", "a'' ", "'"),
    "escaped quotes never closed": ("e'", r"\'", ""),
    "escaped strings": ("", r"e'\\", ""),
    "quoted names never closed": ("", '"" "', ""),
    "an odd number of quotes of names": ('"', '""', ""),
    "quoted names behind words": ("", 'a""x ', '"'),
    "quoted names behind begin": ('begin "', '""begin ', ""),
    "empty dollar quotes": ("", "$", ""),
    "comments never closed": ("", "/* ", ""),
    "comments that end at once": ("", "/**/", ""),
    "dashes": ("", "-", ""),
    "spaces": ("new.id := ", " ", "x"),
    "spaces in a quoted name": ('new.id := "', "\t ", '"'),
    "semicolons": ("", ";", ""),
    "calls never closed": ("new.id := ", "nextval(", ""),
    "calls in calls": ("new.id := nextval(", "nextval (", ")"),
    "calls of one name": ("new.id := ", "nextval('a') + ", "1"),
    "calls with an open quote": ("new.id := ", "nextval(' ) '", ""),
    "parentheses behind a constant": ("new.id := nextval('a'", ")", "x)"),
    "casts of a constant": ("new.id := nextval('a'", "::a", "-)"),
    "an expression of constants": ("new.id := nextval(", "''||format(", "x)"),
    "templates": ("new.id := nextval(", "format('%s'::text, '')||", "'a')"),
    "templates in templates": ("new.id := nextval(", "format(", "'a')"),
    "a template": ("new.id := nextval(format('", "%1$", "', 'a'))"),
    "a template of digits": ("new.id := nextval(format('%", "1", "', 'a'))"),
    "a long name": ("new.id := nextval(k || '", "a\n", "')"),
    "rounded times": ("new.id := ", "date_trunc(", ""),
    "units": ("new.id := date_trunc('", "s", ""),
    "seconds": ("new.id := ", "epoch ", ""),
    "casts": ("new.id := epoch", "::", ""),
    "precisions": ("new.id := ", "timestamp( ", ""),
    "rows of other tables": ("new.id := nextval(x) ", "insert into a ", ""),
    "a row of a table with a long name": ("new.id := nextval(x) insert into ", "a", ""),
    "variables of the trigger": ("new.id := ", "nextval(tg_name)+", "1"),
    "statements that run": ("new.id := ", "execute 'nextval(", ""),
}
"""Beginning, repeated part and end of each kind of code."""

NUMBERED = {
    "dollar quotes never closed": "${0}$ ",
    "a chain of variables": "{0} := {1};",
    "a chain of variables, backwards": "{1} := {0};",
    "aliases of many names": "{0} alias for new; {0}.id := 1;",
    "calls of many names": "new.id := nextval('{0}' || 'x');",
    "functions": "new.id := {0}();",
    "arguments of the trigger": "new.id := nextval(tg_argv[0]);",
}
"""Repeated part of each kind of code, with names that differ."""


LONGEST = (
    "types without a value",
    "declarations without a value",
    "declarations in nested blocks",
    "templates",
    "one word",
    "fields",
    "assignments of subscripts",
    "queries without a target",
    "an odd number of quotes of names",
    "calls never closed",
    "calls in calls",
    "parentheses behind a constant",
    "seconds",
    "rows of other tables",
    "dollar quotes never closed",
    "a chain of variables, backwards",
    "aliases of many names",
)


def word(number: int) -> str:
    letters = ""
    for _ in range(4):
        number, digit = divmod(number, 25)
        letters = chr(ord("a") + digit) + letters
    return f"z{letters}"


def code(shape: str, length: int) -> str:
    if shape in SHAPES:
        first, part, last = SHAPES[shape]
        return first + part * ((length - len(first) - len(last)) // len(part)) + last
    part = NUMBERED[shape]
    count = length // len(part.format(word(0), word(1)))
    return "".join(part.format(word(number), word(number + 1)) for number in range(count))


class Catalog:
    """Answers for a table whose cursor is filled by one trigger or default, and maybe a function that these call."""

    def __init__(self, *, trigger: str = "", default: str = "", function: str = "") -> None:
        self._trigger = trigger
        self._default = default
        self._function = function

    def __call__(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if "pg_attrdef" in statement:
            return [(self._default, False)] if self._default else []
        if "pg_trigger" in statement:
            return [("fill", "source", "public", "plpgsql", self._trigger, "x" * 60, 1)] if self._trigger else []
        if "prosrc" in statement:
            return [("public", "give", "plpgsql", self._function, True, False)] if self._function else []
        return [("a",)] if "statement_timeout" in statement else []


PLACES: dict[str, Callable[[str], Catalog]] = {
    "a trigger": lambda text: Catalog(trigger=text),
    "an assignment of a trigger": lambda text: Catalog(trigger="new.id := " + text),
    "a function": lambda text: Catalog(trigger="new.id := give()", function=text),
}


def read(catalog: Catalog) -> Sequence[CursorAssignment]:
    found = cursor_assignments(catalog, COLUMNS)
    for item in found:
        for kind in (CursorKind.INT8, CursorKind.TIMESTAMPTZ):
            if not item.own:  # those are run, not read
                is_coarse(catalog, item, kind, -1)
    return found


def seconds(place: str, shape: str, length: int) -> float:
    catalog = PLACES[place](code(shape, length))
    before = time.process_time()
    read(catalog)
    return time.process_time() - before


@pytest.mark.parametrize("shape", [*SHAPES, *NUMBERED])
@pytest.mark.parametrize("place", PLACES)
def test_code_of_twice_the_length_takes_about_twice_the_time(place: str, shape: str) -> None:
    halves, wholes = [], []
    for _ in range(5):  # the least of each, since others use the machine too
        halves.append(seconds(place, shape, LENGTH >> 6))
        wholes.append(seconds(place, shape, LENGTH >> 5))
        if min(wholes) < 3 * max(min(halves), MEASURABLE):
            break

    assert min(wholes) < 3 * max(min(halves), MEASURABLE)


@pytest.mark.parametrize("shape", LONGEST)
def test_the_longest_code_is_read_in_seconds(shape: str) -> None:
    assert seconds("a trigger", shape, LENGTH) < SECONDS


def test_a_trigger_that_is_longer_is_not_read() -> None:
    longest = code("spaces", LENGTH)

    assert [item.unreadable for item in read(Catalog(trigger=longest))] == [None]
    assert [item.unreadable for item in read(Catalog(trigger=longest + " "))] == ["is longer than 256 KiB"]


def test_a_default_that_is_longer_is_not_read() -> None:
    (found,) = read(Catalog(default="a" * (LENGTH + 1)))

    assert found.label == "its default"
    assert found.unreadable == "is longer than 256 KiB"


def test_a_function_that_is_longer_is_not_read_even_if_nothing_else_names_the_cursor() -> None:
    (found,) = read(Catalog(trigger="new := give(new)", function=" " * (LENGTH + 1)))

    assert found.unreadable == "calls public.give, which is longer than 256 KiB"


def test_functions_that_are_longer_together_are_not_read() -> None:
    class Many(Catalog):
        def __call__(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            return [
                (f"s{number}", *row[1:]) if row[1:2] == ("give",) else row
                for row in super().__call__(statement, values)
                for number in range(5 if row[1:2] == ("give",) else 1)
            ]

    (found,) = read(Many(trigger="new.id := give()", function=" " * LENGTH))

    assert found.unreadable == "calls s4.give, which with its other functions is longer than 1024 KiB"


def test_only_so_many_expressions_are_evaluated() -> None:
    asked: list[str] = []

    class Counting(Catalog):
        def __call__(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            asked.append(statement)
            return super().__call__(statement, values)

    (found,) = read(Counting(trigger=code("calls of many names", LENGTH >> 4)))

    assert sum("statement_timeout" in statement for statement in asked) == 100
    assert found.unreadable is not None
