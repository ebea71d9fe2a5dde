"""Whole numbers in texts are accepted in ASCII digits only."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.numbers import parse_whole_number


@pytest.mark.parametrize(("text", "number"), [("12", 12), (" -3 ", -3), ("+0", 0)])
def test_a_whole_number_is_read(text: str, number: int) -> None:
    assert parse_whole_number(text) == number


@pytest.mark.parametrize("text", ["", "\u0663", "1\u0663", "1_000", "1.0", "\u00b2", "one"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_whole_number(text)
