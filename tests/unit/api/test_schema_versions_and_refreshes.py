"""The API's models of schema versions on a number line, and of unpublished refreshes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_ckpt.api.line_views import partition_line
from airflow_provider_ckpt.api.models.lines import SchemaVersionMark
from airflow_provider_ckpt.api.models.pipeline_detail import RefreshState
from airflow_provider_ckpt.api.views import refresh
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.column_change import source_changes
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.schema_version import VersionColumn
from airflow_provider_ckpt.ledger.queries.line import PartitionLine
from airflow_provider_ckpt.ledger.queries.refreshes import HeldPublication, RefreshProgress
from airflow_provider_ckpt.ledger.queries.schema_versions import ShownVersion

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = VersionColumn("id", 1, "integer")
STAGING = RefreshProgress("t", 2, NOW, 50, 20, 2, 3, 0, 0, released=False, held=None)
HELD = HeldPublication(BatchKey(2, "t", 4), "no rows " * 1000, NOW)


def mark(*columns: VersionColumn, decision: tuple[str, ...] = ()) -> SchemaVersionMark:
    """The mark of a version with some columns, after one that has ``id`` alone."""
    shown = ShownVersion(2, 1, 7, len(columns), source_changes([ID], columns), decision, "cli:host:1:2", NOW)
    line = PartitionLine("t", 1, 0, 0, 0, 10, None, None, Range(0, 10), [], [], schema_versions=[shown])
    return partition_line(line).schema_versions[0]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((ID, VersionColumn("a", 2, "text")), ("added", "a", None, "text", None)),
        ((), ("dropped", "id", "integer", None, None)),
        ((VersionColumn("id", 1, "bigint"),), ("retyped", "id", "integer", "bigint", None)),
        ((VersionColumn("key", 1, "integer"),), ("renamed", "id", "integer", "integer", "key")),
        ((VersionColumn("id", 2, "text"),), ("replaced", "id", "integer", "text", None)),
    ],
)
def test_a_change_of_a_column_has_its_kind_and_types(columns: tuple[VersionColumn, ...], expected: Any) -> None:
    (change,) = mark(*columns).changes
    assert (change.kind, change.column, change.before, change.after, change.new_name) == expected


def test_a_mark_is_bounded_whatever_the_number_and_length_of_its_changes() -> None:
    added = [VersionColumn(f"c{number}" + "x" * 5000, number, "text") for number in range(2, 30)]
    found = mark(ID, *added, decision=tuple("y" * 5000 for _ in added))
    assert (len(found.changes), found.changes_left_out, len(found.decision), found.columns) == (20, 8, 20, 29)
    assert {len(text) for text in (*found.decision, *(change.column for change in found.changes))} == {2000}
    assert (found.actor, found.run) == ("cli:host:1:2", None)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (STAGING, RefreshState.STAGING),
        (replace(STAGING, staged_positions=50), RefreshState.STAGED),
        (replace(STAGING, staged_positions=50, released=True), RefreshState.RELEASED),
        (replace(STAGING, staged_positions=50, held=HELD), RefreshState.HELD),
    ],
)
def test_a_refresh_has_one_state(found: RefreshProgress, state: RefreshState) -> None:
    shown = refresh(found)
    assert (shown.state, shown.since, shown.generation) == (state, NOW, 2)
    assert (shown.hold is not None) == (state is RefreshState.HELD)


def test_the_reason_of_a_held_publication_is_bounded() -> None:
    hold = refresh(replace(STAGING, held=HELD)).hold
    assert hold is not None
    assert (hold.batch, len(hold.reason or ""), hold.since) == ("t#4@2", 2000, NOW)
