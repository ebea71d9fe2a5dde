"""Dead letters: which are selected, how consecutive ones are divided, and the positions of a replay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.apply_action import apply
from airflow_provider_ckpt.core.batch_key import BatchKey, side_generation
from airflow_provider_ckpt.core.dead_letters import (
    REPLAYABLE,
    DeadLetterEvent,
    DeadLetters,
    DeadLetterState,
    IndexEntry,
    RereadRange,
    newest_reread,
    update_entries,
)
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import PipelineState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.replayable_dead_letters import (
    Selection,
    find_replayed,
    replaying_within,
    select,
    select_numbers,
    take_first,
)
from airflow_provider_ckpt.core.side_partitions import restore_replay
from tests.unit.core.machines import NOW


def dead_letters(
    seq: int = 0, records: int = 10, *, first: int = 0, kind: str = "Sink", partition: str = "p"
) -> DeadLetters:
    """Letters of batch ``seq`` of the first generation."""
    return DeadLetters(BatchKey(1, partition, seq), kind, first, records, 1, 1)


def entry(found: DeadLetters, state: DeadLetterState = DeadLetterState.PARKED, *, minutes: int = 0) -> IndexEntry:
    """Their line in the index: a batch holds a hundred positions."""
    span = Range(found.key.seq * 100, (found.key.seq + 1) * 100)
    return IndexEntry(found, span, state, NOW + timedelta(minutes=minutes))


SELECTED = DeadLetterEvent.SELECTED
INDEX = [
    entry(dead_letters(1, 3, kind="Serialization"), minutes=1),
    entry(dead_letters(0, 10)),
    entry(dead_letters(1, 5), minutes=1),
    entry(dead_letters(2, 4), DeadLetterState.REPLAYED, minutes=2),
    entry(dead_letters(3, 4), DeadLetterState.DISCARDED, minutes=3),
    entry(dead_letters(4, 4), DeadLetterState.PARKED, minutes=4),
]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [(0, 10), (1, 3), (1, 5), (4, 4)]),
        (Selection(types=frozenset({"Serialization"})), [(1, 3)]),
        (Selection(batches=frozenset({BatchKey(1, "p", 1)})), [(1, 3), (1, 5)]),
        (Selection(since=NOW + timedelta(minutes=1)), [(1, 3), (1, 5), (4, 4)]),
        (Selection(until=NOW + timedelta(minutes=1)), [(0, 10)]),
        (Selection(stop_at=12), [(0, 10), (1, 2)]),
        (Selection(stop_at=10), [(0, 10)]),
        (Selection(batches=frozenset({BatchKey(1, "p", 2)})), []),
    ],
)
def test_a_selection_chooses_what_is_open_oldest_first(selection: Selection, expected: list[tuple[int, int]]) -> None:
    chosen = [(found.key.seq, found.records) for found in select(INDEX, selection, [])]

    assert sorted(chosen) == sorted(expected)
    assert [seq for seq, _ in chosen] == [seq for seq, _ in expected]


@pytest.mark.parametrize(
    ("reread", "subsumed"),
    [
        (RereadRange("p", 2, 150, None), [1, 1, 4]),
        (RereadRange("p", 2, 200, None), [4]),
        (RereadRange("p", 2, 100, 200), [1, 1]),
        (RereadRange("p", 2, 0, 100), [0]),
        (RereadRange("p", 1, 0, None), []),
        (RereadRange("q", 2, 0, None), []),
    ],
)
def test_what_was_read_again_since_is_subsumed(reread: RereadRange, subsumed: list[int]) -> None:
    chosen = select(INDEX, Selection(), [reread])
    gone = [
        found.dead_letters.key.seq
        for found in INDEX
        if found.state in REPLAYABLE and newest_reread(found, [reread]) is not None
    ]

    assert sorted(gone) == subsumed
    assert len(chosen) == 4 - len(subsumed)


def test_moving_some_cuts_the_line() -> None:
    whole = entry(dead_letters(0, 10))

    moved, changed = update_entries(
        [whole],
        [dead_letters(0, 3, first=4)],
        SELECTED,
        state=DeadLetterState.REPLAYING,
        replay="dlq:2:p",
    )

    assert moved == [dead_letters(0, 3, first=4)]
    ((before, after),) = changed
    assert before == whole
    assert [(part.dead_letters.first, part.dead_letters.records, part.state.value, part.replay) for part in after] == [
        (0, 4, "parked", None),
        (4, 3, "replaying", "dlq:2:p"),
        (7, 3, "parked", None),
    ]


def test_what_is_in_another_state_or_of_another_attempt_does_not_move() -> None:
    replaying = entry(dead_letters(0, 10), DeadLetterState.REPLAYING)
    of_another_attempt = replace(dead_letters(1, 10), attempt=2)

    assert update_entries([replaying], [dead_letters(0, 10)], SELECTED, state=DeadLetterState.DISCARDED) == ([], [])
    assert update_entries(
        [entry(dead_letters(1, 10))], [of_another_attempt], SELECTED, state=DeadLetterState.DISCARDED
    ) == ([], [])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=6))
def test_moving_twice_moves_once_and_loses_nothing(wanted: list[tuple[int, int]]) -> None:
    whole = [entry(dead_letters(0, 20)), entry(dead_letters(0, 20, first=20), DeadLetterState.DISCARDED)]
    runs = [dead_letters(0, records, first=first) for first, records in wanted]

    moved, changed = update_entries(whole, runs, SELECTED, state=DeadLetterState.REPLAYING)
    taken = dict(changed)
    after = [part for found in whole for part in taken.get(found, [found])]

    numbers = {number for first, records in wanted for number in range(first, first + records) if number < 20}
    assert sorted(n for run in moved for n in range(run.first, run.end)) == sorted(numbers)
    assert sorted(n for part in after for n in range(part.dead_letters.first, part.dead_letters.end)) == list(range(40))
    assert update_entries(after, runs, SELECTED, state=DeadLetterState.REPLAYING)[0] == []


RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=5)


@given(RUNS, st.booleans(), st.integers(1, 9))
def test_a_replay_numbers_every_letter_once_however_it_is_cut(
    runs: list[tuple[int, int]], newest_first: bool, size: int
) -> None:
    given_letters = [dead_letters(seq, records, first=first) for seq, (first, records) in enumerate(runs)]
    replay = Replay.of(given_letters, newest_first=newest_first)
    expected = [(found.key.seq, n) for found in given_letters for n in range(found.first, found.end)]
    if newest_first:
        expected.reverse()

    found: list[tuple[int, int]] = []
    for start in range(0, replay.records, size):
        for placed in replay.within(Range(start, min(start + size, replay.records))):
            numbers = list(range(placed.dead_letters.first, placed.dead_letters.end))
            assert placed.start == len(found)
            found += [(placed.dead_letters.key.seq, n) for n in (reversed(numbers) if newest_first else numbers)]

    assert found == expected
    assert Replay.from_json(replay.to_json()) == replay


@given(st.sets(st.integers(5, 24)), st.integers(0, 25))
def test_runs_and_the_first_of_them_keep_every_number(numbers: set[int], stop_at: int) -> None:
    runs = select_numbers(dead_letters(0, 20, first=5), sorted(numbers))

    def named(found: list[DeadLetters]) -> list[int]:
        return [number for run in found for number in range(run.first, run.end)]

    assert named(runs) == sorted(numbers)
    assert named(list(take_first(runs, stop_at))) == sorted(numbers)[:stop_at]
    assert list(take_first(runs, None)) == runs
    assert all(one.end < other.first for one, other in pairwise(runs))


def test_a_replay_is_a_side_partition_of_its_own_for_each_source() -> None:
    machine = PipelineState([Partition("p"), Partition("q")])
    chosen = (
        dead_letters(0, 3, partition="p"),
        dead_letters(0, 4, partition="q"),
        dead_letters(0, 5, partition="dlq:1:p"),
    )
    action = Action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=chosen)

    events = apply(machine, Action.from_json(action.to_json()), reason="mended")

    assert [(event.kind, event.partition) for event in events] == [
        ("side_partition_started", "dlq:2:p"),
        ("side_partition_started", "dlq:3:q"),
    ]
    assert machine.partitions["dlq:2:p"].limit == 8
    assert machine.partitions["dlq:3:q"].limit == 4
    assert machine.generation == 3


@pytest.mark.parametrize("kind", [ActionKind.REPLAY_DEAD_LETTERS, ActionKind.DISCARD_DEAD_LETTERS])
def test_an_act_on_no_letters_is_refused(kind: ActionKind) -> None:
    machine = PipelineState([Partition("p")])

    with pytest.raises(LedgerStateError, match="parked any more"):
        apply(machine, Action(kind), reason="twice")

    assert list(machine.partitions) == ["p"]


def test_discarding_says_how_many_of_each_batch() -> None:
    machine = PipelineState([Partition("p")])
    action = Action(
        ActionKind.DISCARD_DEAD_LETTERS,
        dead_letters=(dead_letters(0, 3), dead_letters(0, 4, kind="Io"), dead_letters(1, 5)),
    )

    events = apply(machine, action, reason="tests")

    assert [(event.seq, event.detail["records"]) for event in events] == [(0, 7), (1, 5)]


def test_a_forgotten_replay_gets_its_number_back() -> None:
    machine = PipelineState([Partition("p")], generation=7)

    older, _ = restore_replay(machine, "p", 4, Replay((dead_letters(),)))
    newer, _ = restore_replay(machine, "p", 9, Replay((dead_letters(),)))

    assert (older.id, newer.id, machine.generation) == ("dlq:4:p", "dlq:9:p", 9)
    assert [side_generation(name) for name in ("dlq:4:p", "p", "dlq:x:p")] == [4, 0, 0]
    assert [BatchKey(4, name, 0).is_replay for name in ("dlq:4:p", "replay:4:p", "p", "dlq:p")] == [
        True,
        False,
        False,
        False,
    ]


def test_what_a_lost_replay_left_is_at_rest_where_it_was() -> None:
    again = entry(dead_letters(0, 1, partition="dlq:2:p"), DeadLetterState.REPLAYING)

    assert entry(dead_letters()).parked_state is DeadLetterState.PARKED
    assert again.parked_state is DeadLetterState.PARKED_AGAIN


def entry_of(state: DeadLetterState, *, replay: str | None = None, own: DeadLetters | None = None) -> IndexEntry:
    """Ten letters of positions ``[0, 20)``."""
    return IndexEntry(own or dead_letters(), Range(0, 20), state, NOW, 0, replay)


@pytest.mark.parametrize("state", list(DeadLetterState))
def test_only_letters_whose_replay_is_not_done_are_taken_back(state: DeadLetterState) -> None:
    entry = entry_of(state, replay="dlq:2:p")
    expected = [entry] if state is DeadLetterState.REPLAYING else []

    assert replaying_within([entry], [("p", Range(19, 30))]) == expected
    assert replaying_within([entry], [("p", Range(20, 30))]) == []
    assert replaying_within([entry], [("q", Range(0, 30))]) == []


@pytest.mark.parametrize(("again", "delivered"), [(0, 10), (4, 10), (10, 0)])
@pytest.mark.parametrize("state", [DeadLetterState.PARKED_AGAIN, DeadLetterState.DISCARDED])
def test_letters_that_a_replay_parked_again_were_not_delivered(
    again: int, delivered: int, state: DeadLetterState
) -> None:
    failed = DeadLetters(BatchKey(2, "dlq:2:p", 0), "Sink", 0, again, 1, 1)
    entries = [entry_of(DeadLetterState.REPLAYED, replay="dlq:2:p"), *([entry_of(state, own=failed)] if again else [])]

    found = find_replayed(entries, [("p", Range(0, 5))], [])

    assert sum(entry.dead_letters.records for entry in found) == delivered
    later = [*entries, entry_of(DeadLetterState.REPLAYED, replay="dlq:3:p", own=dead_letters(1))]
    assert len(find_replayed(later, [("p", Range(0, 5))], [])) == len(found) + 1
