"""Sensors and their triggers with a real ledger, source and Delta table: poked, deferred, and fired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    TaskDeferred,
)
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import BaseSerialization

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.sensors.attention import CkptDeadLettersSensor, CkptHeldBatchesSensor
from airflow_provider_ckpt.sensors.base import CkptSensor
from airflow_provider_ckpt.sensors.checkpoint import CkptCheckpointSensor
from airflow_provider_ckpt.sensors.lag import CkptLagSensor
from airflow_provider_ckpt.triggers import condition, start_on_lag
from airflow_provider_ckpt.triggers.start_on_lag import CkptWorkTrigger
from tests.integration.airflow.users import LINE, SIZE, People

AHEAD = 4 * SIZE
"""Positions of pipeline ``people`` that are not behind its checkpoint."""


@pytest.fixture(autouse=True)
def shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """No real Airflow has to notice here that a worker has ended."""
    monkeypatch.setattr(condition, "SHORTEST_WAIT", timedelta())


def sensor(kind: type[CkptSensor], pipeline: Any = "people", **given: Any) -> Any:
    with DAG("care", schedule=None):
        return kind(task_id="wait", pipeline=pipeline, poke_interval=0.05, timeout=0.1, **given)


def execute(task: Any, **params: Any) -> Any:
    """Return the result of the task in a DAG run, after its templates were rendered."""
    dag_run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name=None)
    context: Any = {"dag_run": dag_run, "params": params, "ti": SimpleNamespace(map_index=-1)}
    task.render_template_fields(context)
    return task.execute(context)


def hold_one(people: People) -> None:
    people.ledger.action("people", Action(ActionKind.HOLD, (BatchKey(1, people.partition, 4),)), actor="test")


def test_lag_is_what_the_source_holds_beyond_the_checkpoint(people: People) -> None:
    found = execute(sensor(CkptLagSensor, at_least="{{ params.lag }}"), lag=AHEAD)

    assert found == {"pipeline": "people", "lag": {people.partition: AHEAD}, "total": AHEAD, "not_begun": []}
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(CkptLagSensor, at_least=AHEAD + 1))


def test_a_new_file_counts_at_once_whether_a_run_has_planned_it_or_not(people: People) -> None:
    (people.inbox / "b.jsonl").write_text(LINE * 3)

    found = execute(sensor(CkptLagSensor, pipeline=people.document, at_least=AHEAD + 3 * SIZE))

    assert found["total"] == AHEAD + 3 * SIZE


def test_a_pipeline_that_has_not_run_yet_has_everything_before_it(people: People) -> None:
    other = {**people.document, "name": "other"}

    assert execute(sensor(CkptLagSensor, pipeline=other, at_least=1))["total"] == 10 * SIZE
    latest = {**other, "source": {"type": "files", "path": str(people.inbox), "start_from": "latest"}}
    assert execute(sensor(CkptLagSensor, pipeline=latest, at_most=0))["total"] == 0


def test_it_has_caught_up_where_no_more_than_this_is_left(people: People) -> None:
    assert execute(sensor(CkptLagSensor, at_most=AHEAD))["total"] == AHEAD
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(CkptLagSensor, at_most=AHEAD - 1))


def test_a_checkpoint_is_reached_by_all_partitions_or_by_those_that_are_named(people: People) -> None:
    here = {people.partition: 6 * SIZE}

    assert execute(sensor(CkptCheckpointSensor, position=6 * SIZE))["checkpoint"] == here
    assert execute(sensor(CkptCheckpointSensor, position={people.partition: str(SIZE)}))["checkpoint"] == here
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(CkptCheckpointSensor, position=6 * SIZE + 1, partition=people.partition))


def test_held_batches_are_noticed(people: People) -> None:
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(CkptHeldBatchesSensor))
    hold_one(people)

    assert execute(sensor(CkptHeldBatchesSensor)) == {
        "pipeline": "people",
        "held": 1,
        "batches": [f"{people.partition}#4"],
    }


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (CkptCheckpointSensor, {"position": SIZE, "partition": "u"}),
        (CkptDeadLettersSensor, {}),
        (CkptHeldBatchesSensor, {}),
    ],
)
def test_a_declared_pipeline_that_has_never_run_is_waited_for(
    people: People, kind: type[CkptSensor], given: dict[str, Any]
) -> None:
    other = {**people.document, "name": "other"}
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(kind, other, **given))
    with pytest.raises(TaskDeferred):
        execute(sensor(kind, other, deferrable=True, **given))

    people.ledger.acquire("other", "test", timedelta(minutes=1))  # its first run begins, and has found nothing yet

    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(kind, other, **given))


def test_no_dead_letters_no_alarm(people: People) -> None:
    with pytest.raises(AirflowSensorTimeout):
        execute(sensor(CkptDeadLettersSensor, error_types=["Sink"]))


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (CkptLagSensor, {}, "at_least or at_most"),
        (CkptLagSensor, {"at_least": 1, "at_most": 1}, "just one of them"),
        (CkptLagSensor, {"at_least": 1, "partition": "u"}, "there is no source partition 'u'"),
        (CkptCheckpointSensor, {"position": {"u": 1}}, "there is no source partition 'u'"),
        (CkptCheckpointSensor, {"position": ""}, "position is empty"),
        (CkptHeldBatchesSensor, {"at_least": 0}, "a whole number from 1"),
        (CkptHeldBatchesSensor, {"pipeline": "peple"}, "Did you mean people"),
        (CkptDeadLettersSensor, {"error_types": ["sink"]}, "no error type 'sink'. Did you mean Sink?"),
    ],
)
@pytest.mark.parametrize("deferrable", [True, False])
def test_what_can_never_be_met_fails_at_once(
    people: People, kind: type[CkptSensor], given: dict[str, Any], says: str, deferrable: bool
) -> None:
    assert people.partition
    with pytest.raises(AirflowFailException, match=says):
        execute(sensor(kind, deferrable=deferrable, **given))


def test_a_ledger_out_of_reach_may_be_tried_again(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", f"ckpt://{people.file.parent}/elsewhere.db")

    with pytest.raises(AirflowException) as caught:
        execute(sensor(CkptHeldBatchesSensor))

    assert not isinstance(caught.value, AirflowFailException)


def restored(trigger: Any) -> Any:
    """As Airflow makes it again in the triggerer from what it has stored."""
    path, arguments = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    assert "s3cret" not in str(arguments)
    return type(trigger)(
        **BaseSerialization.deserialize(json.loads(json.dumps(BaseSerialization.serialize(arguments))))
    )


def test_a_deferred_sensor_is_done_at_once_where_the_condition_is_met(people: People) -> None:
    assert execute(sensor(CkptLagSensor, at_least=1, deferrable=True))["total"] == AHEAD


def woken(deferred: Any, action: Callable[[], object]) -> dict[str, Any]:
    """The event of a trigger that waits until something is done."""
    trigger = restored(deferred)

    async def wait() -> dict[str, Any]:
        waiting = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await asyncio.to_thread(action)
        return dict((await asyncio.wait_for(waiting, 30)).payload)

    return asyncio.run(wait())


@pytest.mark.parametrize("pipeline", ["people", "document"])
def test_a_deferred_sensor_is_woken_by_what_happens(people: People, pipeline: str) -> None:
    task = sensor(CkptHeldBatchesSensor, people.document if pipeline == "document" else pipeline, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        execute(task)

    event = woken(deferred.value.trigger, lambda: hold_one(people))

    assert task.execute_complete({}, event) == {"pipeline": "people", "held": 1, "batches": [f"{people.partition}#4"]}
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout == timedelta(seconds=0.1)


def test_a_trigger_waits_out_a_secrets_backend_that_does_not_answer(
    people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "connections.json"
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(secrets)}))
    ledger = {"ckpt_kept_safe": {"conn_type": "ckpt", "extra": {"path": f"{tmp_path}/ledger.db"}}}
    secrets.write_text(json.dumps(ledger))
    with pytest.raises(TaskDeferred) as deferred:
        execute(sensor(CkptHeldBatchesSensor, deferrable=True, ckpt_conn_id="ckpt_kept_safe"))
    secrets.unlink()

    def hold_one_and_answer() -> None:
        hold_one(people)
        secrets.write_text(json.dumps(ledger))

    assert woken(deferred.value.trigger, hold_one_and_answer)["seen"]["held"] == 1


def test_a_trigger_tells_the_task_that_waiting_cannot_help(people: People) -> None:
    task = sensor(CkptLagSensor, at_least=AHEAD + 1, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        execute(task)
    trigger = restored(deferred.value.trigger)
    trigger.condition["partition"] = "u"

    async def first() -> dict[str, Any]:
        return dict((await anext(trigger.run())).payload)

    event = asyncio.run(first())

    with pytest.raises(AirflowFailException, match="there is no source partition 'u'"):
        task.execute_complete({}, event)
    assert people.partition


def test_a_watcher_fires_for_work_and_then_not_before_a_run_has_ended(people: People) -> None:
    trigger = restored(CkptWorkTrigger(pipeline="people", at_least=AHEAD, longest_wait=3600, every=0.05))

    async def watch() -> list[dict[str, Any]]:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def keep() -> None:
            async for event in trigger.run():
                events.put_nowait(event.payload)

        watching = asyncio.create_task(keep())
        first = await asyncio.wait_for(events.get(), 60)
        await asyncio.to_thread(deliver_rest, people)
        await asyncio.sleep(0.5)
        assert events.empty()
        (people.inbox / "b.jsonl").write_text(LINE * 4)
        second = await asyncio.wait_for(events.get(), 60)
        watching.cancel()
        return [first, second]

    events = asyncio.run(watch())

    assert events == [{"pipeline": "people", "reason": "enough", "lag": {people.partition: AHEAD}}] * 2


def deliver_rest(people: People) -> None:
    with people.acquire() as run:
        people.deliver(run, sorted(run.planned(), key=lambda batch: batch.key))
        run.settle()
        people.ledger.release(run.lease)


def test_a_watcher_knows_a_declared_pipeline_before_its_first_run(people: People) -> None:
    trigger = restored(CkptWorkTrigger(pipeline={**people.document, "name": "other"}, every=0.05))

    async def first() -> dict[str, Any]:
        return dict((await anext(trigger.run())).payload)

    assert asyncio.run(first())["reason"] == start_on_lag.TriggerReason.ENOUGH
    assert people.partition
