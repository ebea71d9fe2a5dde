"""The fence of a PostgreSQL sink stops a lane of an older epoch, however long the lane was delayed in its batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import psycopg2

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError
from airflow_provider_ckpt.testing.sink_harness import Run, content, task
from tests.integration.connectors.postgres.test_sink import TargetHarness
from tests.services.tables import scalar

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ckpt:%' AND wait_event_type = 'Lock'"


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Hold up whoever writes to the target."""
    with closing(psycopg2.connect(dsn)) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLE target IN EXCLUSIVE MODE")
        yield
        holder.rollback()


def wait_for_a_lane(dsn: str) -> None:
    """Until a lane waits for the target: it has claimed its receipt by then."""
    deadline = time.monotonic() + 30
    while scalar(dsn, WAITING) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_waits_inside_a_batch_when_the_fence_rises_never_commits(postgres_database: str) -> None:
    harness = TargetHarness(postgres_database)
    with Run(harness, 1) as old, Run(harness, 2) as new, ThreadPoolExecutor(1) as pool:
        old.take_over()
        with locked(postgres_database):
            lane = pool.submit(old.send, task(0), content(0))
            wait_for_a_lane(postgres_database)
            new.sink.fence(2)
            receipts = new.receipts()

        with suppress(FencedError):  # its session was ended just before the fence rose, so it may hear of that alone
            assert lane.result(timeout=30).outcome is AttemptOutcome.FAILED
        assert (receipts, new.receipts(), harness.target()) == ([], [], [])
