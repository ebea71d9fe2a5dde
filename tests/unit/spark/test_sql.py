"""Tests of the SQL expressions that cannot raise an error: column names, and a few functions of a column."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.spark.sql import cannot_raise


@pytest.mark.parametrize(
    "expression", ["id", " id ", "_x9", "`two words`", "`a``b`", "`1 + 1`", "upper(id)", " LENGTH ( `a b` ) "]
)
def test_a_name_or_a_harmless_function_of_one_needs_no_guard(expression: str) -> None:
    assert cannot_raise(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "id + 1",
        "a.b",
        "f(x)",
        "1x",
        "'text'",
        "`a` + `b`",
        "CURRENT_DATE",
        "cast(a as int)",
        "`a`b`",
        "upper(1)",
        "upper(a",
        "a)",
        "upper(current_date)",
        "trim(lower(a))",
        "trim(a, b)",
    ],
)
def test_anything_else_does(expression: str) -> None:
    assert not cannot_raise(expression)


@pytest.mark.parametrize(
    "expression", ["upper(1)", "upper(a", "a)", "upper(current_date)", "trim(lower(a))", "trim(a, b)", "reverse(a)"]
)
def test_nor_does_a_harmless_function_of_anything_else(expression: str) -> None:
    assert not cannot_raise(expression)
