"""Real browser for tests: headless Chromium with a new profile, signed in to Airflow as one of several users."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PATIENCE_MS = 90_000


class Browser:
    """Chromium as a context manager, in which each user logs in to Airflow by its form, once.

    :param url: address of Airflow
    :param passwords: password by user
    """

    def __init__(self, url: str, passwords: Mapping[str, str]) -> None:
        self._url = url
        self._passwords = passwords
        self._windows: dict[tuple[str, tuple[int, int], float], BrowserContext] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        """Start it."""
        from playwright.sync_api import sync_playwright

        executable = shutil.which("chromium")
        if executable is None:
            raise RuntimeError("there is no Chromium; make browser installs it")
        with ExitStack() as opened:
            playwright = opened.enter_context(sync_playwright())
            self._chromium = playwright.chromium.launch(executable_path=executable, args=list(_ARGUMENTS))
            opened.callback(self._chromium.close)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._opened.close()

    @contextmanager
    def page(self, user: str, *, size: tuple[int, int] = (1100, 760), scale: float = 1) -> Iterator[Page]:
        """Open an empty page for somebody who is logged in; it is closed at the end of the block.

        :param user: name of the user
        :param size: width and height of the page in CSS pixels
        :param scale: pixels of a screenshot for each CSS pixel
        """
        key = (user, size, scale)
        if key not in self._windows:
            self._windows[key] = self._log_in(user, size, scale)
        page = self._windows[key].new_page()
        try:
            yield page
        finally:
            page.close()

    def _log_in(self, user: str, size: tuple[int, int], scale: float) -> BrowserContext:
        window = self._chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            device_scale_factor=scale,
            locale="en-GB",
            timezone_id="UTC",
            base_url=self._url,
        )
        window.set_default_timeout(_PATIENCE_MS)
        page = window.new_page()
        page.goto("/auth/login")
        page.locator("input[name=username]").fill(user)
        page.locator("input[name=password]").fill(self._passwords[user])
        page.locator("[type=submit]").first.click()
        page.get_by_test_id("nav-sidebar").wait_for()
        page.close()
        return window


@contextmanager
def page_of(
    url: str, user: str, password: str, *, size: tuple[int, int] = (1100, 760), scale: float = 1
) -> Iterator[Page]:
    """Open an empty page in a browser of its own, logged in; the browser ends with the block.

    :param url: address of Airflow
    :param user: name of the user
    :param password: the user's password
    :param size: width and height of the page in CSS pixels
    :param scale: pixels of a screenshot for each CSS pixel
    """
    with Browser(url, {user: password}) as browser, browser.page(user, size=size, scale=scale) as page:
        yield page
