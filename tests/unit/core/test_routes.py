"""Branches of the DAG that follow a settled run."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.routes import Route, routes


@pytest.mark.parametrize(
    ("dead_lettered", "waiting", "held", "expected"),
    [
        (0, 0, 0, [Route.DONE]),
        (5, 0, 0, [Route.DEAD_LETTERS, Route.DONE]),
        (0, 1, 0, [Route.RETRY]),
        (5, 1, 2, [Route.DEAD_LETTERS, Route.RETRY, Route.HOLD]),
        (0, 0, 1, [Route.HOLD]),
    ],
)
def test_a_run_leads_to_all_that_it_needs_and_to_done_if_nothing_waits(
    dead_lettered: int, waiting: int, held: int, expected: list[Route]
) -> None:
    assert routes(dead_lettered=dead_lettered, waiting=waiting, held=held) == expected
