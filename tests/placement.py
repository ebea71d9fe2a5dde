"""A test's kind is its directory: each gets that marker, and one that stands elsewhere fails the collection."""

from __future__ import annotations

from pathlib import Path

import pytest

KINDS = ("unit", "integration", "system", "formal")
_ROOT = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by its directory, and put those that take longest first.

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
    items.sort(key=lambda item: _kind(item) != "system")  # several workers then end at about the same time


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(_ROOT).parts[0]
