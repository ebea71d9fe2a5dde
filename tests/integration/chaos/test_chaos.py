"""A short chaos test: a few crash points on every source and sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.crash_points.campaign import Campaign, Plan, shortcomings
from tests.chaos.crash_points.pairs import PAIRS, Pair
from tests.chaos.crash_points.refresh_trial import MOMENTS
from tests.chaos.crash_points.servers import Servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = 3
RECORDS = 400
REPEATED = ("kafka-postgres", "postgres-kafka")
"""Pairs whose source and sink are both in others as well; ``make chaos`` strikes them, too."""

DRIVERS_KILLED = ("files-delta", "kafka-kafka")
"""``test_run_iceberg.py`` kills drivers that commit to Iceberg, and ``test_crash.py`` such that write to a database."""


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not pair.refreshes and str(pair) not in REPEATED], ids=str)
def test_no_crash_point_loses_or_doubles_anything(
    spark: SparkSession, servers: Servers, tmp_path: Path, pair: Pair
) -> None:
    plan = Plan(POINTS, minutes=20, seed=7, pairs=[pair], drivers=str(pair) in DRIVERS_KILLED, records=RECORDS)

    summary = Campaign(servers, spark, tmp_path, plan).run()

    assert shortcomings(summary) == []
    assert summary["crash_points"] >= POINTS


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.refreshes], ids=str)
def test_readers_see_whole_generations_at_each_crash_point_of_a_refresh(
    spark: SparkSession, servers: Servers, tmp_path: Path, pair: Pair
) -> None:
    plan = Plan(len(MOMENTS), minutes=20, seed=7, pairs=[pair], drivers=False)

    summary = Campaign(servers, spark, tmp_path, plan).run()

    assert shortcomings(summary) == []
    assert summary["trials"] == 1
