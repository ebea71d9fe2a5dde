"""Tests of the parts of an expression that depend on time or session, which are found in its text."""

from __future__ import annotations

import time

import pytest

from airflow_provider_ckpt.spark.transform.determinism import varying_part


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("now()", "now()"),
        ("`now`()", "now()"),
        ("concat('it''s ', Now ( ))", "Now()"),
        ("/* ' */ now() /* ' */", "now()"),
        ("date 'today'", "date 'today'"),
        ('TIMESTAMP "now UTC"', "TIMESTAMP 'now'"),
        ("CURRENT_DATE + 1", "CURRENT_DATE"),
        ("unix_timestamp( )", "unix_timestamp()"),
        ("'now(), current_date' || \"date 'today'\" /* now() */ -- user", None),
        ("`current_date` || `now`", None),
        ("date '2024-01-01'", None),
        ("r'now'", None),
        ("struct(a as user)", None),
        ("payload.user", None),
        ("transform(list, user -> user + 1)", None),
        ("user", "user"),
        ("USER_ID", None),
    ],
)
def test_only_what_changes_is_found(expression: str, found: str | None) -> None:
    assert varying_part(expression, ["a"]) == found


def test_a_column_comes_before_a_function_of_its_name() -> None:
    assert varying_part("user", ["User"]) is None


@pytest.mark.parametrize("part", ["'", "`now", "/*", "--", "now ", " ", "as ", "'\\", '"\\', "date "])
def test_a_long_expression_takes_no_longer_than_its_length(part: str) -> None:
    started = time.process_time()
    varying_part(part * 100_000, ["a"])
    assert time.process_time() - started < 5
