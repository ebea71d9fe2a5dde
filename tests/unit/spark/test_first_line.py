"""Tests of the line that is reported of an error from Spark: the line that names the cause."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.spark.sql import first_line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero.\n  at somewhere", "[DIVIDE_BY_ZERO] Division by zero."),
        (
            "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n\tat x",
            "org.apache.spark.SparkException: Job aborted",
        ),
        ("", "ValueError"),
        ("\n\n", "ValueError"),
    ],
    ids=["of an expression", "without a Python class", "nothing", "empty lines"],
)
def test_the_line_that_says_what_is_wrong(text: str, said: str) -> None:
    assert first_line(ValueError(text)) == said
