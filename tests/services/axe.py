"""Check the accessibility of a page with axe-core."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SCRIPT = Path(__file__).parents[2] / "airflow_provider_ckpt" / "ui" / "node_modules" / "axe-core" / "axe.min.js"
_GRAVE = ("serious", "critical")


def violations(page: Page, selector: str) -> list[str]:
    """Return a line for each serious or critical violation within some elements of a page.

    :param page: the page
    :param selector: CSS selector of the elements
    """
    if not _SCRIPT.exists():
        raise RuntimeError(f"{_SCRIPT} is not there; make browser installs it")
    page.evaluate(_SCRIPT.read_text())
    found = page.evaluate("selector => axe.run(selector, { resultTypes: ['violations'] })", selector)["violations"]
    return [
        f"{item['impact']}: {item['id']}: {node['html'][:200]}: {node['failureSummary'][:300]}"
        for item in found
        if item["impact"] in _GRAVE
        for node in item["nodes"]
    ]
