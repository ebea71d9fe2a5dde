"""A real browser of the tests' own: headless Chromium with a new profile, logged in to Airflow as some user."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PATIENCE_MS = 30_000


@contextmanager
def page_of(
    url: str, user: str, password: str, *, size: tuple[int, int] = (1100, 760), scale: float = 1
) -> Iterator[Page]:
    """Open a page of Airflow, logged in by its form; the browser ends with the block.

    :param url: address of Airflow
    :param user: name of the user
    :param password: the user's password
    :param size: width and height of the page in CSS pixels
    :param scale: pixels of a screenshot for each CSS pixel
    """
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    if executable is None:
        raise RuntimeError("there is no Chromium; make browser installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(_ARGUMENTS))
        try:
            page = browser.new_page(
                viewport={"width": size[0], "height": size[1]},
                device_scale_factor=scale,
                locale="en-GB",
                timezone_id="UTC",
                base_url=url,
            )
            page.set_default_timeout(_PATIENCE_MS)
            page.goto("/auth/login")
            page.locator("input[name=username]").fill(user)
            page.locator("input[name=password]").fill(password)
            page.locator("[type=submit]").first.click()
            page.get_by_test_id("nav-sidebar").wait_for()
            yield page
        finally:
            browser.close()
