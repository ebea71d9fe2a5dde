"""Chaos in small: some crash points on every pair of connectors, and a few more from Kafka to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.havoc.campaign import Campaign, Plan, shortcomings
from tests.chaos.havoc.ground import Ground
from tests.chaos.havoc.pairs import PAIRS, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("pairs", "points"),
    [([Pair("kafka", "kafka", copies=True)], 5), (PAIRS, 25)],
    ids=["kafka to kafka, exactly once", "every pair"],
)
def test_no_crash_point_loses_or_doubles_anything(
    spark: SparkSession, ground: Ground, tmp_path: Path, pairs: list[Pair], points: int
) -> None:
    plan = Plan(points, minutes=20, seed=7, pairs=pairs)

    summary = Campaign(ground, spark, tmp_path, plan).run()

    assert shortcomings(summary) == []
    assert summary["crash_points"] >= points
