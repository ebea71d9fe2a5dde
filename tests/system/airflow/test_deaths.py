"""A worker is killed at a moment that gates and locks make certain."""

from __future__ import annotations

from tests.services import processes
from tests.services.tables import scalar
from tests.system.airflow.scene import Scene


def test_a_worker_killed_while_spark_delivers_is_fenced_and_its_batches_are_sent_again(scene: Scene) -> None:
    scene.write("dead_at_submit", range(80))
    with scene.closed("dead_at_submit"):
        run_id = scene.begin("dead_at_submit")
        scene.at_gate("dead_at_submit")
        processes.kill(scene.worker("dead_at_submit", run_id, "replicate.submit"))
        scene.happens("dead_at_submit", "fenced")

    scene.succeeds("dead_at_submit", run_id)

    seen = scene.trace("dead_at_submit")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.epoch == 2
    assert scene.task("dead_at_submit", run_id, "replicate.submit")["try_number"] == 2


def test_a_worker_killed_after_the_delivery_and_before_the_settlement_is_settled_from_the_receipts(
    scene: Scene,
) -> None:
    name = "dead_before_settle"
    scene.write(name, range(80))
    with scene.locked(scene.ledger_dsn) as lock:
        with scene.closed(name):
            run_id = scene.begin(name)
            scene.at_gate(name)
            lock("SELECT 1 FROM ckpt_lease WHERE pipeline = %s FOR UPDATE", [name])
        scene.airflow.until(
            lambda: bool(scalar(scene.store, f"SELECT count(*) FROM {name}")), 60, "nothing was delivered"
        )
        processes.kill(scene.worker(name, run_id, "replicate.submit"))
        assert scene.checkpoint(name) == 0

    scene.succeeds(name, run_id)

    seen = scene.trace(name)
    assert seen.ids == list(range(80))
    assert not seen.held
    assert scene.task(name, run_id, "replicate.submit")["try_number"] == 2
    assert scene.airflow.task_log(name, run_id, "replicate.submit").count(f"Starting Spark for {name}") == 1


def test_a_worker_killed_after_the_settlement_leaves_nothing_to_do(scene: Scene) -> None:
    name = "dead_after_settle"
    scene.write(name, range(80))
    with scene.closed(name):
        run_id = scene.begin(name)
        scene.at_gate(name)
        worker = scene.worker(name, run_id, "replicate.submit")
    scene.airflow.until(lambda: scene.checkpoint(name) > 0, 60, "nothing was settled")
    processes.kill(worker)

    scene.succeeds(name, run_id)

    seen = scene.trace(name)
    assert seen.ids == list(range(80))
    assert not seen.held
    assert scene.task(name, run_id, "replicate.submit")["try_number"] == 2
    assert scene.airflow.task_log(name, run_id, "replicate.submit").count(f"Starting Spark for {name}") == 1
