"""The page Replication in a real browser, from the list to a held batch that is released.

``make screenshots`` takes the documentation's pictures by this test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.services.airflow import AirflowServices
from tests.services.browser import page_of
from tests.system.page.ledger_states import HOSTILE, fill

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

SIZE = (1360, 720)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServices]:
    """Airflow's API server, with an administrator, a viewer, and a ledger whose pipelines need attention."""
    home = tmp_path_factory.mktemp("page")
    (home / "dags").mkdir()
    users = {"ada": "admin", "vera": "viewer"}
    services = AirflowServices(home / "airflow", home / "dags", users=users, pages_only=True)
    with services:
        fill(ledger_of(services), home)
        yield services


def ledger_of(airflow: AirflowServices) -> str:
    """URL of the ledger in AIRFLOW_HOME."""
    return f"sqlite:///{airflow.home}/ckpt.db"


def watch(page: Page) -> list[str]:
    """Collect what the browser's console reports as an error from now on."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"{message.text} {message.location}")

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems


def test_a_held_batch_is_found_and_released(airflow: AirflowServices, pictures: Path) -> None:
    with page_of(airflow.url, "ada", airflow.passwords["ada"], size=SIZE) as page:
        problems = watch(page)
        page.goto("/plugin/replication")
        page.get_by_role("link", name="orders").wait_for()
        page.screenshot(path=pictures / "page-list.png")

        page.get_by_role("link", name="orders").click()
        page.get_by_text("1 batch is held: t#10").first.wait_for()
        page.get_by_text("every position accounted for").wait_for()
        page.screenshot(path=pictures / "page-line.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=pictures / "page-line-dark.png")
        page.emulate_media(color_scheme="light")

        page.get_by_role("button", name="Release").first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("cell", name="planned").wait_for()
        page.screenshot(path=pictures / "page-release.png")
        assert state_of_the_batch(airflow) == {"held": 1}, "a dry run changes nothing"
        dialog.get_by_label("Reason").fill(f"the target has room again {HOSTILE}")
        dialog.get_by_role("button", name="Release").click()

        airflow.until(lambda: state_of_the_batch(airflow) == {"planned": 1}, 30, "the batch was not released")
        page.goto("/plugin/replication/pipelines/orders/events")
        page.get_by_text("the target has room again <script>").first.wait_for()
        assert problems == []


def test_a_viewer_does_not_see_pipelines_of_dags_that_airflow_does_not_know(airflow: AirflowServices) -> None:
    with page_of(airflow.url, "vera", airflow.passwords["vera"], size=SIZE) as page:
        page.goto("/plugin/replication")
        page.get_by_test_id("ckpt-page").wait_for()
        page.get_by_text("No pipeline").first.wait_for()

        assert page.get_by_role("link", name="orders").count() == 0


def state_of_the_batch(airflow: AirflowServices) -> dict[str, int]:
    """Unresolved batches of the pipeline ``orders``, by state."""
    with Ledger.open(ledger_of(airflow)) as ledger:
        found: dict[str, int] = ledger.status("orders")["batches"]
        return {state: count for state, count in found.items() if state in ("held", "planned")}
