"""A test in a wrong directory, or with the marker of another kind, fails the collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.placement import pytest_collection_modifyitems, together

TESTS = Path(__file__).parents[1]


class Item:
    """Stand-in for a collected test, with the attributes that the hook uses."""

    def __init__(self, path: str, *markers: str) -> None:
        self.path = TESTS / path
        self.nodeid = path
        self.markers = list(markers)

    def iter_markers(self) -> list[pytest.Mark]:
        return [getattr(pytest.mark, name).mark for name in self.markers]

    def add_marker(self, marker: str) -> None:
        self.markers.append(marker)


def collect(item: Item) -> list[str]:
    pytest_collection_modifyitems([cast("Any", item)])
    return item.markers


def test_a_test_gets_the_marker_of_its_directory() -> None:
    assert collect(Item("integration/spark/test_it.py")) == ["integration"]


def test_a_unit_test_is_fast() -> None:
    assert collect(Item("unit/test_it.py")) == ["unit", "fast"]


def test_the_tests_of_a_file_stay_together_and_so_do_all_that_share_one_airflow(request: pytest.FixtureRequest) -> None:
    assert together(request.node.nodeid) == "tests/unit/test_placement.py"
    shared = {together(f"tests/system/airflow/test_{name}.py::test_it[x]") for name in ("deaths", "over")}
    assert len(shared) == 1


def test_a_test_outside_of_these_directories_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match=r"belongs into one of tests/{unit,integration,system,formal}"):
        collect(Item("test_stray.py"))


def test_a_test_that_claims_another_kind_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="is marked system but stands in tests/unit"):
        collect(Item("unit/test_it.py", "system"))
