"""A pipeline that has not begun: logs and previews of tasks show ``start`` as its checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from structlog.testing import capture_logs

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.operators._markdown import approval_body
from airflow_provider_ckpt.operators.carry_out import CkptReportOperator
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
from airflow_provider_ckpt.replication.actions.proposals import preview
from airflow_provider_ckpt.sensors.checkpoint import CkptCheckpointSensor
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered


@pytest.fixture
def orders(ledger: Ledger) -> LedgerDriver:
    """Pipeline ``orders`` on a source with a cursor; nothing is planned."""
    return LedgerDriver(ledger).start("t", base=START)


def execute(task: BaseOperator, method: str = "execute") -> Any:
    context: Any = {"dag_run": SimpleNamespace(dag_id="care", run_id="one"), "ti": SimpleNamespace(map_index=-1)}
    return getattr(task, method)(context)


def test_a_preview_of_a_rewind_to_it_names_it(orders: LedgerDriver) -> None:
    orders.settle(*map(delivered, orders.begin(orders.plan(2000, records=10))))
    orders.ledger.release(orders.lease)
    action = Action(ActionKind.REWIND, positions={"t": START})
    context = ActionContext(orders.ledger, "orders", lambda: pytest.fail("the ledger is enough"), "ann", "wrong rates")

    body = approval_body(
        Proposal.new("orders", action, origin="care/one/preview", actor="ann", reason="wrong rates"),
        preview(context, action),
    )

    assert "| checkpoint of t | 2000 \\(generation 1\\) | start \\(generation 2\\) |" in body


def test_the_report_and_the_sensor_log_it_and_return_the_number(orders: LedgerDriver) -> None:
    assert orders.partition("t").committed == START
    with DAG("care", schedule=None):
        report = CkptReportOperator(task_id="report", pipeline="orders", preview="preview")
        sensor = CkptCheckpointSensor(task_id="wait", pipeline="orders", position=1)

    with capture_logs() as lines:
        found, seen = execute(report), execute(sensor, "poke")

    logged = "\n".join(str(line) for line in lines)
    assert found["checkpoint"] == seen.xcom_value["checkpoint"] == {"t": START}
    assert logged.count("{'t': 'start'}") == 2
    assert "9223" not in logged
