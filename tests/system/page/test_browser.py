"""The page *Replication* in a real browser: every view, its accessibility, and the release of a held batch.

``make screenshots`` makes the documentation's pictures with these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.services.airflow import AirflowServices
from tests.services.axe import violations
from tests.services.browser import Browser
from tests.system.page.console import watch
from tests.system.page.ledger_states import HOSTILE, begin_refresh, fill, hold_publication

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

SIZE = (1360, 720)
VIEWS = {
    "line": "every position accounted for",
    "timeline": "Lag and checkpoint over time",
    "batches?batch=t%2310": "value too long",
    "dead-letters?type=MessageDeserialization": "not JSON",
    "events": "a full disk",
    "declaration": "decode: json",
}
"""Text by which a view is known to be whole; by its address below the pipeline's."""

SHOWN = (
    *("list", "database", "database-dark", "line", "line-dark", "release", "batches"),
    *("dead-letters", "timeline", "delete", "break-lease", "refresh"),
)
"""The documentation's pictures."""

PAGE, DIALOG = "[data-testid=ckpt-page]", "[data-testid=ckpt-dialog]"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServices]:
    """Airflow's API server, with an administrator, a viewer, and a ledger whose pipelines need attention."""
    home = tmp_path_factory.mktemp("page")
    (home / "dags").mkdir()
    users = {"ada": "admin", "vera": "viewer"}
    services = AirflowServices(home / "airflow", home / "dags", users=users, pages_only=True)
    with services:
        fill(ledger_of(services), home, is_hostile=False)
        yield services


@pytest.fixture(scope="module")
def browser(airflow: AirflowServices) -> Iterator[Browser]:
    """The browser of all tests; each opens a page of its own."""
    with Browser(airflow.url, airflow.passwords) as opened:
        yield opened


def ledger_of(airflow: AirflowServices) -> str:
    """URL of the ledger in AIRFLOW_HOME."""
    return f"sqlite:///{airflow.home}/ckpt.db"


def judged(page: Page, selector: str, name: str, pictures: Path) -> list[str]:
    """Return the violations of what is shown, in the dark and in the light mode, and take the pictures of it.

    :param page: the page
    :param selector: CSS selector of what is judged
    :param name: name of the view
    :param pictures: folder for the pictures
    """
    found = []
    for end in ("-dark", ""):
        page.emulate_media(color_scheme="dark" if end else "light")
        page.wait_for_function("dark => document.documentElement.classList.contains('dark') === dark", arg=bool(end))
        found += [f"{name}{end}: {line}" for line in violations(page, selector)]
        if f"{name}{end}" in SHOWN:
            page.screenshot(path=pictures / f"page-{name}{end}.png")
    return found


def test_every_view_is_accessible_in_light_and_dark(browser: Browser, pictures: Path) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        page.goto("/plugin/replication")
        page.get_by_role("link", name="orders").wait_for()
        found = judged(page, PAGE, "list", pictures)
        page.get_by_test_id("ckpt-databases").get_by_role("link", name="shop", exact=True).click()
        page.get_by_role("link", name="shop.public.items").wait_for()
        assert page.get_by_role("link", name="prices").count() == 0
        found += judged(page, PAGE, "database", pictures)
        page.get_by_test_id("ckpt-databases").get_by_role("link", name="blocked 1").click()
        page.get_by_role("link", name="shop.public.items").wait_for(state="detached")
        page.get_by_role("link", name="shop.public.customers").click()
        page.get_by_label("Where you are").get_by_role("link", name="shop", exact=True).wait_for()
        for address, text in VIEWS.items():
            page.goto(f"/plugin/replication/pipelines/orders/{address}")
            page.get_by_text(text).or_(page.get_by_label(text)).first.wait_for()
            found += judged(page, PAGE, address.partition("?")[0], pictures)

        assert found == []
        assert problems == []


def test_a_held_batch_is_found_and_released(airflow: AirflowServices, browser: Browser, pictures: Path) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        page.goto("/plugin/replication")
        page.get_by_role("link", name="orders").click()
        page.get_by_text("1 batch is held: t#10").first.wait_for()

        page.get_by_role("button", name="Release the held batch").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("cell", name="planned").wait_for()
        assert judged(page, DIALOG, "release", pictures) == []
        place = dialog.get_by_label("Reason").bounding_box()
        assert place is not None
        assert place["y"] + place["height"] < SIZE[1], "the reason is asked for without scrolling"
        assert state_of_the_batch(airflow) == {"held": 1}, "a dry run changes nothing"
        dialog.get_by_label("Reason").fill(f"the target has room again {HOSTILE}")
        dialog.get_by_role("button", name="Release").click()

        airflow.until(lambda: state_of_the_batch(airflow) == {"planned": 1}, 180, "the batch was not released")
        page.goto("/plugin/replication/pipelines/orders/events")
        page.get_by_text("the target has room again <script>").first.wait_for()
        assert problems == []


def test_a_refresh_is_followed_and_its_held_publication_is_released(
    airflow: AirflowServices, browser: Browser, pictures: Path
) -> None:
    with (
        Ledger.open(ledger_of(airflow)) as ledger,
        browser.page("ada", size=SIZE) as page,
    ):
        problems = watch(page)
        driver = begin_refresh(ledger)
        page.goto("/plugin/replication/pipelines/countries/line")
        refresh = page.get_by_role("region", name="Refresh of table")
        refresh.get_by_text("20 of 50 positions staged (40 %); 2 batches staged, 1 open").wait_for()
        found = judged(page, PAGE, "staging", pictures)
        hold_publication(driver, "the refresh has no rows, and the target has 30 (sink.replace.allow_empty: false)")
        refresh.get_by_text("Held because the refresh has no rows, and the target has 30").wait_for()
        found += judged(page, PAGE, "refresh", pictures)
        refresh.get_by_role("button", name="Release table#4@2").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("the source is empty, too")
        dialog.get_by_role("button", name="Release", exact=True).click()
        refresh.get_by_text("Its publication was released").wait_for()

        assert (found, problems) == ([], [])


def test_the_mark_of_a_schema_version_opens_by_the_keyboard_and_by_the_pointer(browser: Browser) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        page.goto("/plugin/replication/pipelines/orders/line")
        mark = page.get_by_role("button", name="Schema version 2 from 120")
        mark.wait_for()
        card = page.get_by_test_id("ckpt-schema-card")
        assert card.count() == 0
        page.get_by_role("button", name="Show all").or_(page.get_by_role("button", name="Zoom in")).first.focus()
        page.keyboard.press("Tab")
        assert mark.evaluate("node => node === document.activeElement"), "it is the next stop of the tab key"
        card.get_by_text("Changed: column note ada (text) added.").wait_for()
        card.get_by_text("Decision: column note ada (text) is new: the target gets it.").wait_for()
        card.get_by_text("Recorded by run manual__1 of DAG shop at").wait_for()
        assert violations(page, PAGE) == []
        page.keyboard.press("Escape")
        card.wait_for(state="detached")
        mark.hover()
        card.get_by_text("Schema version 2 from 120").wait_for()
        place, band = mark.bounding_box(), page.get_by_label("Number line of partition t").bounding_box()
        assert place is not None
        assert band is not None
        middle = (place["x"] + place["width"] / 2 - band["x"]) / band["width"]
        assert abs(middle - (120 - 98) / (140 - 98)) < 0.01, "it stands at its position"
        assert problems == []


def test_a_lease_is_broken_by_whoever_has_seen_whose_it_is(
    airflow: AirflowServices, browser: Browser, pictures: Path
) -> None:
    with Ledger.open(ledger_of(airflow)) as ledger:
        held = ledger.acquire("prices", of_task("shop", "manual__2", "prices", "replicate"), timedelta(hours=1))
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        dialog = open_dialog(page, "prices", "Break lease")
        dialog.get_by_test_id("ckpt-broken-lease").get_by_text("manual__2").wait_for()
        assert "last renewed at" in dialog.get_by_test_id("ckpt-broken-lease").inner_text()
        dialog.get_by_text("the ledger refuses every command of the holder").wait_for()
        assert judged(page, DIALOG, "break-lease", pictures) == []
        button = dialog.get_by_role("button", name="Break lease", exact=True)
        assert button.is_disabled(), "it requires a reason"
        dialog.get_by_label("Reason").fill("its machine is gone")
        button.click()
        page.get_by_test_id("ckpt-outcome").get_by_text("free, epoch").wait_for()
        assert problems == []
    with Ledger.open(ledger_of(airflow)) as ledger, pytest.raises(StaleEpochError):
        ledger.renew(held)


def test_old_history_is_deleted_after_its_rows_were_counted(browser: Browser) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        dialog = open_dialog(page, "bare", "Collect garbage")
        assert dialog.get_by_label("Keep history of").input_value() == "30"
        dialog.get_by_role("button", name="Dry run").click()
        dialog.get_by_role("cell", name="old events").wait_for()
        dialog.get_by_role("button", name="Collect garbage", exact=True).click()
        page.get_by_test_id("ckpt-outcome").get_by_text("old events").wait_for()
        assert problems == []


def test_receipts_are_adopted_by_the_recovery_dag_alone(browser: Browser) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        dialog = open_dialog(page, "bare", "Adopt receipts")
        dialog.get_by_label("Id of the lost ledger").fill("5f0c0d52")
        dialog.get_by_role("button", name="Dry run").click()
        dialog.get_by_text("There is no recovery DAG for this pipeline").wait_for()
        assert dialog.get_by_role("button", name="Adopt receipts", exact=True).count() == 0
        assert problems == []


def test_a_pipeline_is_deleted_by_whoever_types_its_name(
    airflow: AirflowServices, browser: Browser, pictures: Path
) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        dialog = open_dialog(page, "orphan", "Delete pipeline")
        dialog.get_by_role("cell", name="deleted").first.wait_for()
        assert judged(page, DIALOG, "delete", pictures) == []
        button = dialog.get_by_role("button", name="Delete pipeline", exact=True)
        dialog.get_by_label("Reason").fill("its DAG is gone")
        for name, whether in (("", True), ("orphans", True), ("orphan", False)):
            dialog.get_by_label("Type the pipeline's name").fill(name)
            assert button.is_disabled() is whether
        with Ledger.open(ledger_of(airflow)) as ledger:
            assert "orphan" in ledger.pipelines(), "a dry run changes nothing"
        button.click()
        page.get_by_test_id("ckpt-deleted").get_by_text("Pipeline orphan is deleted").wait_for()
        page.get_by_role("link", name="orders").wait_for()
        assert page.get_by_role("link", name="orphan").count() == 0
        assert problems == []
    with Ledger.open(ledger_of(airflow)) as ledger:
        assert "orphan" not in ledger.pipelines()


def open_dialog(page: Page, pipeline: str, action: str) -> Locator:
    """Open a pipeline, and the dialog of an action below *More*."""
    page.goto(f"/plugin/replication/pipelines/{pipeline}/line")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name=f"{action}…").click()
    return page.get_by_role("dialog")


def test_the_label_of_an_attempt_does_not_overlap_the_next_try(browser: Browser) -> None:
    with browser.page("ada", size=SIZE) as page:
        page.goto("/plugin/replication/pipelines/orders/batches?batch=t%2310")
        label = page.get_by_text("attempt 1, epoch 1")
        label.wait_for()
        right = label.evaluate(
            "it => { const r = document.createRange(); r.selectNodeContents(it);"
            " return r.getBoundingClientRect().right }"
        )
        following = page.get_by_test_id("ckpt-attempts").get_by_role("listitem").nth(1).bounding_box()
        assert following is not None
        assert right <= following["x"]


def test_hostile_dead_letters_are_shown_as_text(browser: Browser) -> None:
    with browser.page("ada", size=SIZE) as page:
        problems = watch(page)
        page.goto("/plugin/replication/pipelines/orders/dead-letters?type=Sink")
        records = page.get_by_test_id("ckpt-record")
        records.nth(1).wait_for()
        hostile, long = records.all()

        hostile.get_by_text("value too long <script>alert(1)</script>").wait_for()
        long.get_by_text("Only the beginning of").wait_for()
        assert page.locator("[data-testid=ckpt-page] script").count() == 0
        assert problems == []


def test_a_viewer_does_not_see_pipelines_of_dags_that_airflow_does_not_know(browser: Browser) -> None:
    with browser.page("vera", size=SIZE) as page:
        page.goto("/plugin/replication")
        page.get_by_test_id("ckpt-page").wait_for()
        page.get_by_text("No pipeline").first.wait_for()

        assert page.get_by_role("link", name="orders").count() == 0


def state_of_the_batch(airflow: AirflowServices) -> dict[str, int]:
    """Unresolved batches of the pipeline ``orders``, by state."""
    with Ledger.open(ledger_of(airflow)) as ledger:
        found: dict[str, int] = ledger.status("orders")["batches"]
        return {state: count for state, count in found.items() if state in ("held", "planned")}
