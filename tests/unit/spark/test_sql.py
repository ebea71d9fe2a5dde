"""Which expressions need no guard: the names of columns, and nothing else."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.spark.sql import is_name


@pytest.mark.parametrize("expression", ["id", " id ", "_x9", "`two words`", "`a``b`", "`1 + 1`"])
def test_a_name_needs_no_guard(expression: str) -> None:
    assert is_name(expression)


@pytest.mark.parametrize(
    "expression", ["id + 1", "a.b", "f(x)", "1x", "'text'", "`a` + `b`", "CURRENT_DATE", "cast(a as int)", "`a`b`"]
)
def test_anything_else_does(expression: str) -> None:
    assert not is_name(expression)
