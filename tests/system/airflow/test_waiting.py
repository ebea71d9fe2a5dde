"""A retry waits in a real triggerer: its lease is renewed meanwhile, and a takeover of the lease ends the wait."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.ledger.types import Lease
from tests.services.tables import execute
from tests.system.airflow.deployment import PATIENCE, Deployment

pytestmark = pytest.mark.beside

TTL = timedelta(seconds=15)
"""Time to live of the leases of both pipelines."""


def waits(deployment: Deployment, name: str) -> str:
    """A run whose batches the target refuses, and whose retry waits in the triggerer; its id."""
    deployment.write(name, range(20))
    deployment.refuse(name, whether=True)
    run_id = deployment.begin(name)
    deployment.reaches(name, run_id, "replicate.retry", "deferred")
    return run_id


def test_the_lease_is_renewed_while_the_retry_waits(deployment: Deployment) -> None:
    run_id = waits(deployment, "renewed")

    time.sleep(1.5 * TTL.total_seconds())

    with deployment.ledger() as ledger, pytest.raises(LeaseBusyError, match=f"dag:renewed/{run_id.replace('+', '.')}"):
        ledger.acquire("renewed", "a rival", TTL)
    deployment.refuse("renewed", whether=False)
    deployment.succeeds("renewed", run_id)
    seen = deployment.trace("renewed")
    assert seen.ids == list(range(20))
    assert not seen.held


def test_a_takeover_while_the_retry_waits_fails_it_without_another_try(deployment: Deployment) -> None:
    run_id = waits(deployment, "overtaken")

    with deployment.ledger() as ledger:
        lease = ledger.status("overtaken")["lease"]
        ledger.release(Lease("overtaken", lease["owner"], lease["epoch"], TTL, datetime.now(UTC)))
        ledger.acquire("overtaken", "a rival", timedelta(minutes=5))

    assert deployment.airflow.wait("overtaken", run_id, PATIENCE) == "failed"
    retry = deployment.task("overtaken", run_id, "replicate.retry")
    assert (retry["state"], retry["try_number"]) == ("failed", 1)
    log = deployment.airflow.task_log("overtaken", run_id, "replicate.retry")
    assert f"epoch {lease['epoch'] + 1} was granted to a rival" in log
    assert execute(deployment.store, "SELECT count(*) FROM overtaken") == [(0,)]
