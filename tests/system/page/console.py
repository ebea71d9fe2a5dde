"""Collect the errors that a browser's console reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page


def watch(page: Page) -> list[str]:
    """Collect what the console reports as an error from now on, and exceptions that nothing catches."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"{message.text} {message.location}")

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems
