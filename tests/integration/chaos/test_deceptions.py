"""Whatever the surroundings do behind a pipeline's back, its next run tells, or the target is as it has to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.havoc.deceptions import Act, Deception, deceptions
from tests.chaos.havoc.ground import Ground
from tests.chaos.havoc.pairs import PAIRS, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [(pair, deception) for pair in PAIRS for deception in deceptions(pair)]


@pytest.mark.parametrize(("pair", "deception"), CASES, ids=lambda item: str(item).replace(" ", "-"))
def test_it_is_told_or_made_good(spark: SparkSession, ground: Ground, pair: Pair, deception: Deception) -> None:
    outcome = Act(ground, spark, pair, deception, seed=1).play()

    assert outcome.faults == []
