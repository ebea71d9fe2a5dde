"""A pipeline's asset: its URI, and the runs that emit an event."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, BaseOperator
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_ckpt.assets import pipeline
from airflow_provider_ckpt.assets.pipeline import RUNS, emit_event, pipeline_asset
from airflow_provider_ckpt.links.pipeline import PipelineLink
from airflow_provider_ckpt.operators.carry_out import CkptReportOperator
from airflow_provider_ckpt.operators.outcomes import CkptHoldOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.sensors.attention import CkptHeldBatchesSensor
from tests.unit.task_groups.test_replication import PIPELINE

AUTHORS = Asset("x-table://warehouse/orders")


def summary(after: int, generation: int = 1) -> dict[str, Any]:
    return {
        "pipeline": "orders",
        "epoch": 7,
        "generation": generation,
        "run": "r",
        "route": ["done"],
        "checkpoint": {"p": {"before": 0, "after": after}},
        "records": {"read": 3},
    }


@pytest.fixture
def context() -> Any:
    return {"outlet_events": OutletEventAccessors(), "task": SimpleNamespace(outlets=[AUTHORS, RUNS])}


def newest(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any] | None) -> None:
    monkeypatch.setattr(pipeline, "_newest_extra", lambda asset: extra)


def test_a_dag_may_be_scheduled_on_it_by_its_uri_alone() -> None:
    assert pipeline_asset("eu.orders-1") == Asset("ckpt://eu.orders-1")
    assert pipeline_asset("eu.orders-1").uri == Asset("ckpt://eu.orders-1/").uri == "ckpt://eu.orders-1"


@pytest.mark.parametrize("uri", ["ckpt:///orders", "ckpt://orders/table", "ckpt://orders?x=1"])
def test_another_uri_of_its_scheme_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="ckpt://<name of the pipeline>"):
        Asset(uri)


def test_an_event_tells_the_positions_epoch_and_generation(monkeypatch: pytest.MonkeyPatch, context: Any) -> None:
    newest(monkeypatch, None)

    assert emit_event(context, summary(9)) is True

    (event,) = context["outlet_events"][RUNS].asset_alias_events
    told = {
        "pipeline": "orders",
        "epoch": 7,
        "generation": 1,
        "run": "r",
        "checkpoint": {"p": {"before": 0, "after": 9}},
        "records": {"read": 3},
    }
    assert (event.dest_asset_key.uri, event.extra) == ("ckpt://orders", told)
    assert context["outlet_events"][AUTHORS].extra == told


@pytest.mark.parametrize(
    ("before", "given"), [(summary(9), False), (summary(8), True), (summary(9, generation=2), True), ({}, True)]
)
def test_a_run_that_moved_nothing_gives_none(
    monkeypatch: pytest.MonkeyPatch, context: Any, before: dict[str, Any], given: bool
) -> None:
    newest(monkeypatch, before)

    assert emit_event(context, summary(9)) is given
    assert len(context["outlet_events"][RUNS].asset_alias_events) == given
    assert context["outlet_events"][AUTHORS].extra["epoch"] == 7


def test_airflow_is_asked_for_the_newest_event_only_if_this_task_did_not_move_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    newest(monkeypatch, summary(9))
    unmoved = {**summary(9), "checkpoint": {"p": {"before": 9, "after": 9}}}

    assert emit_event(context, unmoved, of_this_task=True) is False
    assert emit_event(context, summary(9), of_this_task=True) is True


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (CkptReplicateOperator, {"pipeline": PIPELINE}),
        (CkptHoldOperator, {"pipeline": PIPELINE, "after": ()}),
        (CkptDrainOperator, {"pipeline": "orders"}),
        (CkptReportOperator, {"pipeline": "orders", "preview": "p"}),
        (CkptHeldBatchesSensor, {"pipeline": PIPELINE}),
    ],
)
def test_the_link_leads_from_every_task_to_the_asset(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseOperator], given: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team/")

    found = PipelineLink().get_link(kind(task_id="t", **given), ti_key=Any)  # type: ignore[arg-type]

    assert found == "https://airflow.example.com/team/assets?name_pattern=ckpt%3A%2F%2Forders"


def test_the_link_of_a_declaration_that_cannot_be_read_leads_nowhere() -> None:
    task = CkptReplicateOperator(task_id="t", pipeline={"name": "orders"})

    assert PipelineLink().get_link(task, ti_key=Any) == ""  # type: ignore[arg-type]
