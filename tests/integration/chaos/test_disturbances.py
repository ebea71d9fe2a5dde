"""If a source, sink or ledger is changed between two runs, the next run reports the change or the target is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.crash_points.disturbances import RESENT, Disturbance, DisturbedRun, disturbances
from tests.chaos.crash_points.pairs import PAIRS, Pair
from tests.chaos.crash_points.servers import Servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    (pair, disturbance)
    for pair in PAIRS
    for disturbance in disturbances(pair)
    if pair.source in ("files", pair.sink)
    or (pair.sink == "mariadb" and disturbance in RESENT)
    or (pair.source == "sqlite" and disturbance is Disturbance.POSITIONS_REUSED)
]
"""Each disturbance on each sink, and each source; ``make chaos`` plays them on all pairs."""


@pytest.mark.parametrize(("pair", "disturbance"), CASES, ids=lambda item: str(item).replace(" ", "-"))
def test_it_is_told_or_made_good(spark: SparkSession, servers: Servers, pair: Pair, disturbance: Disturbance) -> None:
    outcome = DisturbedRun(servers, spark, pair, disturbance, seed=1).play()

    assert outcome.faults == []
