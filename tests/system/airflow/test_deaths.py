"""A worker is killed at exact moments, which gates and locks determine."""

from __future__ import annotations

import pytest

from tests.services import processes
from tests.services.tables import scalar
from tests.system.airflow.deployment import PATIENCE, Deployment

pytestmark = pytest.mark.beside


def test_a_worker_killed_while_spark_delivers_is_fenced_and_its_batches_are_sent_again(deployment: Deployment) -> None:
    deployment.write("dead_at_submit", range(80))
    with deployment.closed("dead_at_submit"):
        run_id = deployment.begin("dead_at_submit")
        deployment.at_gate("dead_at_submit")
        processes.kill(deployment.worker("dead_at_submit", run_id, "replicate.submit"))
        deployment.happens("dead_at_submit", "fenced")

    deployment.succeeds("dead_at_submit", run_id)

    seen = deployment.trace("dead_at_submit")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.epoch == 2
    assert deployment.task("dead_at_submit", run_id, "replicate.submit")["try_number"] == 2


def test_a_worker_killed_after_the_delivery_and_before_the_settlement_is_settled_from_the_receipts(
    deployment: Deployment,
) -> None:
    name = "dead_before_settle"
    deployment.write(name, range(80))
    with deployment.locked(deployment.ledger_dsn) as lock:
        with deployment.closed(name):
            run_id = deployment.begin(name)
            deployment.at_gate(name)
            lock("SELECT 1 FROM ckpt_lease WHERE pipeline = %s FOR UPDATE", [name])
        deployment.airflow.until(
            lambda: bool(scalar(deployment.store, f"SELECT count(*) FROM {name}")), PATIENCE, "nothing was delivered"
        )
        processes.kill(deployment.worker(name, run_id, "replicate.submit"))
        assert deployment.checkpoint(name) == 0

    deployment.succeeds(name, run_id)

    seen = deployment.trace(name)
    assert seen.ids == list(range(80))
    assert not seen.held
    assert deployment.task(name, run_id, "replicate.submit")["try_number"] == 2
    assert deployment.airflow.task_log(name, run_id, "replicate.submit").count(f"Starting Spark for {name}") == 1


def test_a_worker_killed_after_the_settlement_leaves_nothing_to_do(deployment: Deployment) -> None:
    name = "dead_after_settle"
    deployment.write(name, range(80))
    with deployment.closed(name):
        run_id = deployment.begin(name)
        deployment.at_gate(name)
        worker = deployment.worker(name, run_id, "replicate.submit")
    deployment.airflow.until(lambda: deployment.checkpoint(name) > 0, PATIENCE, "nothing was settled")
    processes.kill(worker)

    deployment.succeeds(name, run_id)

    seen = deployment.trace(name)
    assert seen.ids == list(range(80))
    assert not seen.held
    assert deployment.task(name, run_id, "replicate.submit")["try_number"] == 2
    assert deployment.airflow.task_log(name, run_id, "replicate.submit").count(f"Starting Spark for {name}") == 1
