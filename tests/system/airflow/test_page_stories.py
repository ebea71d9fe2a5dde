"""The page in a real browser with real runs: a blocked pipeline, changed columns, a refresh, and a lost ledger.

The tests are one story and depend on each other. ``AUTH_MANAGERS`` names the auth managers with which they run: with
the simple one in the Airflow that all tests share, with FAB's in a separate one. ``make test-page`` uses both.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.task_lease_owner import of_task
from tests.services.airflow import AirflowServices
from tests.services.browser import Browser
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.tables import execute
from tests.services.warm_spark import WarmSpark
from tests.system.airflow import shop as pipelines
from tests.system.airflow.deployment import PATIENCE, Deployment
from tests.system.page.console import watch

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

USERS = {"ada": "admin", "oscar": "user"}
_WAIT_MS = 120_000


@pytest.fixture(scope="module", params=os.environ.get("AUTH_MANAGERS", "simple").split())
def shop(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Deployment:
    """An Airflow in which the pipelines of the story have run; see :func:`tests.system.airflow.shop.prepare`."""
    name = "fab_deployment" if request.param == "fab" else "deployment"
    found: Deployment = request.getfixturevalue(name)
    pipelines.prepare(found, lost=postgres_server.new_database())
    return found


@pytest.fixture(scope="module")
def fab_deployment(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """An Airflow whose users FAB's auth manager knows, with the pipelines of the story alone."""
    home, dags, data = (tmp_path_factory.mktemp(name) for name in ("home", "dags", "data"))
    (home / "plugins").mkdir()
    here = Path(__file__).parent
    shutil.copy(here / "preloaded.py", home / "plugins")
    for file in ("replication.py", "recovery.py"):
        shutil.copy(here / file, dags)
    metadata, ledger, store = (postgres_server.new_database() for _ in range(3))
    warm = WarmSpark(tmp_path_factory.mktemp("runtime"))
    env = {"AIRFLOW_CONN_STORE": store, "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(ledger), **warm.environment}
    airflow = AirflowServices(home, dags, env, metadata=sqlalchemy_url(metadata), users=USERS, fab=True)
    shop = Deployment(airflow, data, dags, store=store, ledger_dsn=ledger, metadata=metadata)
    pipelines.declare(shop)
    with warm, airflow:
        airflow.cli("roles", "add-perms", "User", "--action", "can_read", "--resource", "Plugins")
        yield shop


@pytest.fixture(scope="module")
def browser(shop: Deployment) -> Iterator[Browser]:
    """The browser of all tests; each opens pages of its own."""
    with Browser(shop.airflow.url, shop.airflow.passwords) as started:
        yield started


@contextmanager
def opened(browser: Browser, pipeline: str = "orders", view: str = "line") -> Iterator[Page]:
    """The page of a pipeline, opened by a user who is no administrator; the console must stay empty."""
    with browser.page("oscar", size=(1360, 720)) as page:
        problems = watch(page)
        page.goto(f"/plugin/replication/pipelines/{pipeline}/{view}")
        page.get_by_role("group", name="Actions").wait_for()
        yield page
        assert problems == []


def carry_out(page: Page, action: str, reason: str) -> None:
    """Give the reason for the action whose dry run is shown, and carry it out."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=action, exact=True).click()
    page.get_by_test_id("ckpt-outcome").wait_for()


def run_now(page: Page) -> None:
    """Trigger the DAG by the page's button, and watch its run there until it is a success."""
    page.get_by_role("button", name="Run orders now").click()
    page.get_by_test_id("ckpt-run").get_by_text("success").wait_for(timeout=_WAIT_MS)


def recover(shop: Deployment, page: Page, reason: str, event: str) -> dict[str, Any]:
    """Start the recovery DAG from the dialog, approve its run in Airflow, and watch it there until it is a success.

    :param reason: the reason to give
    :param event: kind of event of the action, which the audit log must not have before the approval
    :return: the form with which the page triggered it
    """
    dialog = page.get_by_role("dialog")
    start = dialog.get_by_role("button", name="Start its run")
    start.wait_for()
    assert start.is_disabled(), "it requires a reason"
    dialog.get_by_label("Reason").fill(reason)
    start.click()
    run = dialog.get_by_test_id("ckpt-run")
    run.get_by_text("waits for an approval").wait_for(timeout=_WAIT_MS)
    run_id = run.get_by_role("link").first.inner_text().removeprefix("recovery / ")
    path = f"/dags/recovery/dagRuns/{run_id.replace('+', '%2B')}"
    asked: dict[str, Any] = shop.airflow.api("GET", path)["conf"]
    shop.asks("recovery", run_id, "approve")
    assert not shop.events(asked["pipeline"], event), "nothing is done before somebody has approved it"
    answer = {"chosen_options": ["Approve"], "params_input": {}}
    shop.airflow.api("PATCH", f"{path}/taskInstances/approve/-1/hitlDetails", answer, user="oscar")
    run.get_by_text("success").wait_for(timeout=_WAIT_MS)
    dialog.get_by_role("button", name="Cancel").click()
    return asked


def rows(shop: Deployment) -> list[int]:
    """Ids that the target holds."""
    return [row[0] for row in execute(shop.store, "SELECT id FROM orders ORDER BY id")]


def line(page: Page) -> Locator:
    """The caption and the number line of the only source partition."""
    return page.get_by_test_id("ckpt-partition").first


def test_a_blocked_pipeline_is_found_and_released_and_its_checkpoint_moves(shop: Deployment, browser: Browser) -> None:
    with opened(browser) as page:
        page.goto("/plugin/replication")
        row = page.locator("[data-pipeline=orders]")
        row.get_by_text("1 batch is held").wait_for()
        assert row.get_attribute("data-health") == "blocked"
        row.get_by_role("cell", name="1", exact=True).get_by_role("link").click()
        page.locator("[data-batch]").first.get_by_role("button").click()
        batch = page.get_by_test_id("ckpt-batch")
        batch.get_by_test_id("ckpt-error").get_by_text("come back later").wait_for()
        assert batch.get_by_test_id("ckpt-attempts").get_by_text("failed").count() == 2

        shop.refuse("orders", whether=False)
        before = shop.checkpoint("orders")
        page.get_by_role("button", name="Release the held batch").click()
        page.get_by_role("dialog").get_by_role("cell", name="planned").wait_for()
        with shop.ledger() as ledger:
            assert ledger.status("orders")["batches"] == {"held": 1}, "a dry run changes nothing"
        carry_out(page, "Release", "the target has room again")

        page.get_by_role("link", name="Line", exact=True).click()
        old = line(page).get_by_text("checkpoint").first.inner_text()
        run_now(page)
        page.wait_for_function("old => !document.body.innerText.includes(old)", arg=old, timeout=_WAIT_MS)
        assert shop.checkpoint("orders") > before
        assert [number for number in rows(shop) if number < 80] == list(range(80))
        assert shop.events("orders", "release")[0]["actor"] == "airflow:oscar"


def test_dead_letters_are_viewed_and_replayed_and_all_are_delivered(shop: Deployment, browser: Browser) -> None:
    with opened(browser, view="dead-letters") as page:
        group = page.locator("[data-error=Sink]")
        group.get_by_role("cell", name="3", exact=True).wait_for()
        group.get_by_role("button", name="View").click()
        record = page.get_by_test_id("ckpt-record").first
        record.get_by_text('"small"').first.wait_for()
        content = record.locator("pre")
        shown = {}
        for form in ("JSON", "text", "hex"):
            record.get_by_text(form, exact=True).click()
            shown[form] = content.inner_text()
        assert '"id": 1000' in shown["JSON"]
        assert shown["text"].strip() == '{"id": 1000}'
        assert "7b 22 69 64" in shown["hex"]

        execute(shop.store, "ALTER TABLE orders DROP CONSTRAINT small")
        group.get_by_role("button", name="Replay…").click()
        page.get_by_role("dialog").get_by_text("3 records").first.wait_for()
        carry_out(page, "Replay dead letters", "the constraint is gone")
        run_now(page)
        page.get_by_text("No record waits here for a decision.").wait_for()
        assert [number for number in rows(shop) if number >= 1000] == [1000, 1001, 1002]
        assert [event["actor"] for event in shop.events("orders", "dead_letters_read")] == ["airflow:oscar"]


def test_a_rewind_is_shown_before_it_is_done(shop: Deployment, browser: Browser) -> None:
    before, delivered = shop.checkpoint("orders"), rows(shop)
    with shop.ledger() as ledger:
        start = min(item["base"] for item in ledger.partition_rows("orders")[0] if item["side_end"] is None)
    with opened(browser) as page:
        page.get_by_role("button", name="Rewind").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Position").fill(str(start))
        dialog.get_by_role("button", name="Dry run").click()
        dialog.get_by_test_id("ckpt-preview").get_by_text("before", exact=True).wait_for()
        assert dialog.get_by_role("img").count() >= 2, "the line before and after"
        assert dialog.get_by_role("button", name="Rewind", exact=True).is_disabled(), "it requires a reason"
        assert shop.checkpoint("orders") == before
        carry_out(page, "Rewind", "the target lost its rows")
        run_now(page)
        page.get_by_text("generation 2").first.wait_for(timeout=_WAIT_MS)
    assert rows(shop) == sorted(delivered * 2), "a sink that appends has every row twice"


def test_a_run_that_hangs_is_fenced_by_the_recovery_dag_which_the_page_follows(
    shop: Deployment, browser: Browser
) -> None:
    with shop.ledger() as ledger:
        hanging = ledger.acquire("orders", of_task("orders", "manual__0", "orders", "replicate"), timedelta(hours=1))
    with opened(browser) as page:
        page.get_by_role("button", name="Force stop").click()
        asked = recover(shop, page, "its machine is gone", "force_stop")
        page.get_by_role("button", name="Resume").wait_for(timeout=_WAIT_MS)
    assert asked == {"pipeline": "orders", "action": "force_stop", "reason": "its machine is gone"}
    assert shop.epoch("orders") > hanging.epoch
    assert [event["actor"] for event in shop.events("orders", "force_stop")] == ["airflow:oscar"]


def test_changed_columns_are_accepted_and_the_next_run_delivers_them(shop: Deployment, browser: Browser) -> None:
    assert shop.airflow.wait("prices", shop.begin("prices"), PATIENCE) == "failed"
    with opened(browser, "prices") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Accept changed columns").click()
        asked = recover(shop, page, "reviewed", "accept_schema")
    shop.run("prices")
    assert asked == {"pipeline": "prices", "action": "accept_schema", "reason": "reviewed"}
    assert execute(shop.store, "SELECT * FROM prices ORDER BY id") == [(1, 10, None), (2, 20, "USD")]
    assert [event["actor"] for event in shop.events("prices", "accept_schema")] == ["airflow:oscar"]


def test_the_changed_columns_are_a_mark_on_the_line_which_the_keyboard_opens(browser: Browser) -> None:
    with opened(browser, "prices") as page:
        mark = page.get_by_role("button", name=re.compile("^Schema version 2 from "))
        mark.wait_for()
        page.get_by_role("group", name="Schema versions of partition").get_by_role("button").first.focus()
        page.keyboard.press("End")
        card = page.get_by_test_id("ckpt-schema-card")
        card.get_by_text("Changed: column currency (text) added.").wait_for()
        card.get_by_text(re.compile("^Decision: column currency .* airflow:oscar")).wait_for()
        card.get_by_text(re.compile("^Recorded by run .* of DAG prices at ")).wait_for()
        (told,) = (
            page.get_by_role("list", name="Schema versions of partition").get_by_text("currency").all_inner_texts()
        )
        assert all(line in told for line in card.inner_text().splitlines()), "the list says the same"


def test_a_refresh_is_followed_and_its_held_publication_is_released(shop: Deployment, browser: Browser) -> None:
    with shop.closed("countries"):
        first = shop.begin("countries")
        shop.at_gate("countries")
        with opened(browser, "countries") as page:
            refresh = page.get_by_role("region", name="Refresh of")
            refresh.get_by_text("0 of 1 position staged (0 %); 0 batches staged, 1 open").wait_for()
            assert refresh.get_by_text("generation 1").count() == 1
    shop.succeeds("countries", first)
    execute(shop.store, "DELETE FROM land WHERE id > 10")
    shop.airflow.wait("countries", shop.begin("countries"), PATIENCE)
    with opened(browser, "countries") as page:
        refresh = page.get_by_role("region", name="Refresh of")
        refresh.get_by_text("Held because the refresh has 10 rows, and the target has 100").wait_for()
        assert execute(shop.store, "SELECT count(*) FROM countries") == [(100,)]
        refresh.get_by_role("button", name="Release").click()
        page.get_by_role("dialog").get_by_role("cell", name="planned").wait_for()
        carry_out(page, "Release", "they were united")
        refresh.get_by_text("Its publication was released").wait_for()
        shop.run("countries")
        refresh.wait_for(state="detached")
    assert execute(shop.store, "SELECT count(*) FROM countries") == [(10,)]
    assert [event["actor"] for event in shop.events("countries", "release")] == ["airflow:oscar"]


def test_receipts_of_a_lost_ledger_are_adopted_and_nothing_is_sent_twice(shop: Deployment, browser: Browser) -> None:
    run_id = shop.begin("stock")
    assert shop.airflow.wait("stock", run_id, PATIENCE) == "failed"
    refusal = re.search(
        r"receipts of another ledger \(([0-9a-f-]+)\)", shop.airflow.task_log("stock", run_id, "replicate")
    )
    assert refusal
    with opened(browser, "stock") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Adopt receipts").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Id of the lost ledger").fill(refusal[1])
        dialog.get_by_role("button", name="Dry run").click()
        asked = recover(shop, page, "its disk is gone", "adopted")
    shop.write("stock", range(3, 5))
    shop.run("stock")
    assert asked == {
        "pipeline": "stock", "action": "adopt", "ledger_id": refusal[1], "reason": "its disk is gone",
    }  # fmt: skip
    assert shop.trace("stock").ids == list(range(5))
    assert [event["actor"] for event in shop.events("stock", "adopted")] == ["airflow:oscar"]
