"""The tables of a database are summed up in one row; a table with undelivered records never counts as done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ckpt.api.databases import database_rows
from airflow_provider_ckpt.api.models.pipeline_list import Health
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview
from tests.unit.api.test_health import WELL

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = replace(WELL, name="shop.public.orders", planned_at=NOW)


def test_the_most_urgent_health_and_the_numbers_of_tables_are_those_of_the_database() -> None:
    tables = [
        (DONE, Health.WELL, False),
        (replace(DONE, name="shop.public.a", held=2, lag=5, waiting=1), Health.BLOCKED, True),
        (replace(DONE, name="shop.public.b", failing=1, planned=1, lag=5), Health.BLOCKED, False),
        (replace(DONE, name="shop.public.c", failing=1, planned=1, lag=5), Health.WELL, True),
        (replace(DONE, name="shop.public.d", parked=7, replaying=2), Health.DEAD_LETTERS, False),
    ]
    (row,) = database_rows(tables)
    assert (row.name, row.health, row.tables, row.done, row.behind) == ("shop", Health.BLOCKED, 5, 2, 3)
    assert (row.held, row.failed, row.running, row.dead_letters) == (1, 1, 2, 9)
    assert {health: number for health, number in row.by_health.items() if number} == {
        Health.BLOCKED: 2,
        Health.DEAD_LETTERS: 1,
        Health.WELL: 2,
    }


def test_databases_with_an_urgent_table_come_first_and_other_pipelines_are_left_out() -> None:
    tables = [
        (replace(DONE, name="a.public.orders"), Health.WELL, False),
        (replace(DONE, name="b.public.orders"), Health.STOPPED, False),
        (replace(DONE, name="c.public.orders"), Health.BLOCKED, False),
        (replace(DONE, name="orders"), Health.BLOCKED, False),
    ]
    assert [row.name for row in database_rows(tables)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    "found",
    [
        replace(DONE, planned_at=None),
        replace(DONE, lag=None),
        replace(DONE, lag=1),
        replace(DONE, planned=1),
        replace(DONE, in_flight=1),
        replace(DONE, held=1),
    ],
)
def test_a_table_is_behind_while_anything_is_unknown_or_open(found: PipelineOverview) -> None:
    (row,) = database_rows([(found, Health.WELL, False)])
    assert (row.done, row.behind) == (0, 1)


def test_the_oldest_planning_of_its_tables_is_that_of_the_database() -> None:
    older = replace(DONE, name="shop.public.a", planned_at=NOW - timedelta(hours=1))
    never = replace(DONE, name="shop.public.b", planned_at=None)
    (row,) = database_rows([(DONE, Health.WELL, False), (older, Health.WELL, False)])
    assert row.planned_at == NOW - timedelta(hours=1)
    (row,) = database_rows([(older, Health.WELL, False), (never, Health.WELL, False)])
    assert row.planned_at is None
