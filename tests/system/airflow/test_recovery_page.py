"""The recovery DAG on Airflow's pages, in a real browser: form, approval and result; a viewer is refused.

``make screenshots`` makes the documentation's pictures with these tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.browser import page_of
from tests.system.airflow.deployment import PATIENCE, Deployment

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def stuck(deployment: Deployment) -> Deployment:
    """Pipeline ``stuck`` has a held batch: its target was busy in both rounds."""
    deployment.write("stuck", range(80))
    deployment.refuse("stuck", whether=True)
    assert deployment.airflow.wait("stuck", deployment.begin("stuck"), PATIENCE) == "failed"
    deployment.refuse("stuck", whether=False)
    with deployment.ledger() as ledger:
        assert ledger.status("stuck")["batches"] == {"held": 1}
    return deployment


def fill(page: Page) -> None:
    """Open the recovery DAG's form and say what is wanted."""
    page.goto("/dags/recovery")
    page.get_by_test_id("trigger-dag-button").click()
    choose(page, "pipeline", "stuck")
    choose(page, "action", "Release held batches")
    page.locator("#element_reason").fill("the target has room again <b>now</b>")


def choose(page: Page, field: str, text: str) -> None:
    """Choose in one of the form's lists."""
    page.locator(f"#element_{field}").click()
    page.get_by_role("option", name=text, exact=True).click()


def test_held_batches_are_released_in_the_browser(stuck: Deployment, pictures: Path) -> None:
    with page_of(stuck.airflow.url, "ada", stuck.airflow.passwords["ada"]) as page:
        fill(page)
        page.screenshot(path=pictures / "recovery-form.png")
        page.get_by_test_id("trigger-dag-submit").click()
        stuck.airflow.until(lambda: bool(runs(stuck)), PATIENCE, "the form triggered nothing")
        (run_id,) = runs(stuck)
        stuck.asks("recovery", run_id, "approve")

        page.goto(f"/dags/recovery/runs/{run_id}/tasks/approve/required_actions")
        page.get_by_test_id("hitl-option-Approve").wait_for()
        assert page.get_by_text("the target has room again <b>now</b>").is_visible()
        assert page.get_by_role("cell", name="planned").is_visible()
        page.screenshot(path=pictures / "recovery-approval.png")
        page.get_by_test_id("hitl-option-Approve").click()
        stuck.succeeds("recovery", run_id)

        page.goto(f"/dags/recovery/runs/{run_id}/tasks/report")
        page.get_by_text("release of pipeline stuck").first.wait_for()
        assert page.get_by_text("The pipeline now").first.is_visible()
        page.screenshot(path=pictures / "recovery-result.png")


def test_a_viewer_is_refused_on_the_page_as_well(stuck: Deployment, pictures: Path) -> None:
    before = runs(stuck)
    with page_of(stuck.airflow.url, "vera", stuck.airflow.passwords["vera"]) as page:
        fill(page)
        page.get_by_test_id("trigger-dag-submit").click()
        page.get_by_text("Forbidden").first.wait_for()
        page.screenshot(path=pictures / "recovery-refused.png")

    assert runs(stuck) == before


def runs(deployment: Deployment) -> list[str]:
    """The ids of the recovery DAG's runs for pipeline ``stuck``."""
    found = deployment.airflow.api("GET", "/dags/recovery/dagRuns?limit=100")["dag_runs"]
    return [run["dag_run_id"] for run in found if run["conf"].get("pipeline") == "stuck"]
