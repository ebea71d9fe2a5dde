"""The health of a pipeline, and the sentence that explains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_ckpt.api.health import judge
from airflow_provider_ckpt.api.models.pipeline_list import Health
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview

WELL = PipelineOverview(
    "orders",
    "running",
    1,
    None,
    None,
    3,
    None,
    None,
    1,
    0,
    0,
    10,
    10,
    0.0,
    None,
    0,
    0,
    0,
    0,
    0,
    None,
    None,
    0,
    None,
    0,
    0,
    (),
)
FIRST = BatchKey(1, "t", 7)


@pytest.mark.parametrize(
    ("found", "is_running", "health", "text"),
    [
        (WELL, False, Health.WELL, "has never planned anything"),
        (WELL, True, Health.WELL, "running, 0 in flight"),
        (
            replace(WELL, held=1, blocker=FIRST, blocker_error="Sink", waiting=5),
            True,
            Health.BLOCKED,
            "1 batch is held: t#7 (Sink); 5 resolved batches wait behind",
        ),
        (
            replace(WELL, failing=2, blocker=FIRST),
            False,
            Health.BLOCKED,
            "2 batches have failed and no run is trying again: t#7",
        ),
        (replace(WELL, failing=2, in_flight=1, blocker=FIRST), True, Health.WELL, "running, 1 in flight"),
        (
            replace(WELL, lag=2000, earlier_lag=1500),
            False,
            Health.LAG_GROWING,
            "no checkpoint moves, and 2,000 positions are waiting",
        ),
        (replace(WELL, lag=2000, earlier_lag=1500, rate=3.0), True, Health.WELL, "running, 0 in flight"),
        (replace(WELL, lag=2000, earlier_lag=2500, parked=1), False, Health.DEAD_LETTERS, "1 dead letter is parked"),
        (replace(WELL, phase="draining", in_flight=2), True, Health.DRAINING, "draining, 2 in flight"),
        (replace(WELL, phase="stopped"), False, Health.STOPPED, "stopped by a user"),
    ],
)
def test_the_most_urgent_trouble_decides(found: PipelineOverview, is_running: bool, health: Health, text: str) -> None:
    judged, cause = judge(found, is_running=is_running)
    assert (judged, cause.text) == (health, text)
