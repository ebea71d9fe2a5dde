"""Give each test the marker of its directory (unit, integration, system); a test elsewhere fails the collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fast

KINDS = ("unit", "integration", "system", "formal")
_ROOT = Path(__file__).parent
_ONE_AIRFLOW = "tests/system/airflow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by its directory, and those of ``make test-fast``; put those that take longest first.

    :raises pytest.UsageError: if one is outside of all, or claims another kind than its directory's
    """
    for item in items:
        kind = _kind(item)
        claimed = {mark.name for mark in item.iter_markers() if mark.name in KINDS}
        if kind not in KINDS:
            raise pytest.UsageError(f"{item.nodeid}: belongs into one of tests/{{{','.join(KINDS)}}}")
        if claimed - {kind}:
            raise pytest.UsageError(f"{item.nodeid}: is marked {', '.join(sorted(claimed))} but stands in tests/{kind}")
        item.add_marker(kind)
        if kind == "unit" or any(fast.covers(entry, item.nodeid) for entry in fast.ENTRIES):
            item.add_marker("fast")
    items.sort(key=lambda item: _kind(item) != "system")  # several workers then end at about the same time


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of one file in one process, and all that share one Airflow, too."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)


def together(nodeid: str) -> str:
    """Return the group of the tests of one process: their file, or the Airflow that they share.

    :param nodeid: of a test; its file is relative to the repository
    """
    file = nodeid.partition("::")[0]
    return _ONE_AIRFLOW if file.startswith(f"{_ONE_AIRFLOW}/") else file


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(_ROOT).parts[0]
