"""The search of small configurations finds no violation, reaches everything that it must, and detects defects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, PlannedTicket
from tests.formal.configurations import LARGE, SMALL
from tests.formal.coverage import guards
from tests.formal.expectations import PROPERTIES
from tests.formal.search import Found, search, summary


@pytest.fixture(scope="module")
def searched() -> Mapping[str, Found]:
    """Every small configuration, searched to the end."""
    return {name: search(name, bounds) for name, bounds in SMALL.items()}


@pytest.mark.parametrize("name", SMALL)
def test_no_world_within_the_bounds_breaks_a_property(searched: Mapping[str, Found], name: str) -> None:
    found = searched[name]

    assert (found.broken, found.trace) == ({}, [])
    assert found.states > 100


def test_every_situation_state_event_and_transition_was_reached(searched: Mapping[str, Found]) -> None:
    assert [name for name, reached in guards(found.met for found in searched.values()) if not reached] == []


def test_the_summary_names_every_property_and_what_came_of_it(searched: Mapping[str, Found]) -> None:
    summed = summary(list(searched.values()))

    assert summed["properties"] == [{"name": name, "result": "holds"} for name in PROPERTIES]
    assert summed["states"] == sum(found.states for found in searched.values())
    assert set(summed["bounds"]) == set(SMALL)


def test_a_defect_is_found_by_the_shortest_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that forgets a cancellation: no state alone shows it, only the step."""
    release = Partition.release

    def release_and_forget(partition: Partition, ticket: HeldTicket) -> tuple[PlannedTicket, list[Event]]:
        released = release(partition, ticket)
        partition.batches = {seq: replace(batch, cancelled=False) for seq, batch in partition.batches.items()}
        return released

    monkeypatch.setattr(Partition, "release", release_and_forget)
    found = search("people", SMALL["people"])

    assert list(found.broken) == ["CancellationWatermarkBlocks"]
    assert [step.split(" ", 1)[0] for step in found.trace] == ["plan", "begin", "cancel", "hold"]


def test_the_large_configurations_let_everything_happen_too() -> None:
    small, large = (
        {name for bounds in sizes.values() for name, on in bounds.to_json().items() if on is True}
        | {action for bounds in sizes.values() for action in bounds.actions}
        for sizes in (SMALL, LARGE)
    )
    assert small <= large
