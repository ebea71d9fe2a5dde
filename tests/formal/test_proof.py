"""The proof's summary reports every kind of failure, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formal.__main__ import failures, table


def summary() -> dict[str, Any]:
    """A proof in which all went well."""
    part = {"bounds": {}, "states": 1000, "properties": [{"name": "NoDoubleComplete", "result": "holds"}]}
    return {
        "search": part,
        "tlc": dict(part),
        "guards": [{"name": "a stop is refused", "reached": True}],
        "mutants": [{"name": "a held batch does not block", "caught_by": "HeldTransitionsDoNotCommit"}],
    }


def test_a_proof_in_which_all_went_well_has_no_failures() -> None:
    assert failures(summary()) == []


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("guards", {"reached": False}, "never reached: a stop is refused"),
        ("mutants", {"caught_by": None}, "survived: a held batch does not block"),
    ],
)
def test_what_was_not_reached_or_not_caught_is_a_failure(part: str, change: dict[str, Any], message: str) -> None:
    found = summary()
    found[part] = [found[part][0] | change]

    assert failures(found) == [message]


@pytest.mark.parametrize("part", ["search", "tlc"])
def test_a_property_that_does_not_hold_is_a_failure(part: str) -> None:
    found = summary()
    found[part]["properties"] = [{"name": "NoDoubleComplete", "result": "p#1 was delivered and became rejected"}]

    assert f"{part}: NoDoubleComplete: p#1 was delivered and became rejected" in failures(found)


def test_the_table_shows_the_sizes() -> None:
    message = table(summary(), 61.4)

    assert "1,000 states" in message
    assert "1 caught" in message
    assert "61 s, build/formal/summary.json" in message
