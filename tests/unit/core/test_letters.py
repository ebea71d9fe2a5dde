"""Dead letters: which are chosen, how runs of them are cut, and where a replay finds each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.actions import Act, ActKind, apply
from airflow_provider_ckpt.core.batch import BatchKey, side_generation
from airflow_provider_ckpt.core.dead_letters import (
    OPEN,
    Entry,
    Letters,
    LetterState,
    Replay,
    Reread,
    Selection,
    choose,
    first_of,
    move,
    read_again,
    replayed_within,
    replaying_within,
    runs_of,
)
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.pipeline_phases import PipelineMachine
from airflow_provider_ckpt.core.ranges import Range
from tests.unit.core.machines import NOW


def letters(seq: int = 0, records: int = 10, *, first: int = 0, kind: str = "Sink", partition: str = "p") -> Letters:
    """Letters of batch ``seq`` of the first generation."""
    return Letters(BatchKey(1, partition, seq), kind, first, records, 1, 1)


def entry(found: Letters, state: LetterState = LetterState.PARKED, *, minutes: int = 0) -> Entry:
    """Their line in the index: a batch holds a hundred positions."""
    span = Range(found.key.seq * 100, (found.key.seq + 1) * 100)
    return Entry(found, span, state, NOW + timedelta(minutes=minutes))


INDEX = [
    entry(letters(1, 3, kind="Serialization"), minutes=1),
    entry(letters(0, 10)),
    entry(letters(1, 5), minutes=1),
    entry(letters(2, 4), LetterState.REPLAYED, minutes=2),
    entry(letters(3, 4), LetterState.DISCARDED, minutes=3),
    entry(letters(4, 4), LetterState.PARKED, minutes=4),
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
    chosen = [(found.key.seq, found.records) for found in choose(INDEX, selection, [])]

    assert sorted(chosen) == sorted(expected)
    assert [seq for seq, _ in chosen] == [seq for seq, _ in expected]


@pytest.mark.parametrize(
    ("reread", "subsumed"),
    [
        (Reread("p", 2, 150, None), [1, 1, 4]),
        (Reread("p", 2, 200, None), [4]),
        (Reread("p", 2, 100, 200), [1, 1]),
        (Reread("p", 2, 0, 100), [0]),
        (Reread("p", 1, 0, None), []),
        (Reread("q", 2, 0, None), []),
    ],
)
def test_what_was_read_again_since_is_subsumed(reread: Reread, subsumed: list[int]) -> None:
    chosen = choose(INDEX, Selection(), [reread])
    gone = [found.letters.key.seq for found in INDEX if found.state in OPEN and read_again(found, [reread]) is not None]

    assert sorted(gone) == subsumed
    assert len(chosen) == 4 - len(subsumed)


def test_moving_some_cuts_the_line() -> None:
    whole = entry(letters(0, 10))

    moved, changed = move([whole], [letters(0, 3, first=4)], OPEN, state=LetterState.REPLAYING, replay="dlq:2:p")

    assert moved == [letters(0, 3, first=4)]
    ((before, after),) = changed
    assert before == whole
    assert [(part.letters.first, part.letters.records, part.state.value, part.replay) for part in after] == [
        (0, 4, "parked", None),
        (4, 3, "replaying", "dlq:2:p"),
        (7, 3, "parked", None),
    ]


def test_what_is_in_another_state_or_of_another_attempt_does_not_move() -> None:
    replaying = entry(letters(0, 10), LetterState.REPLAYING)
    of_another_attempt = replace(letters(1, 10), attempt=2)

    assert move([replaying], [letters(0, 10)], OPEN, state=LetterState.DISCARDED) == ([], [])
    assert move([entry(letters(1, 10))], [of_another_attempt], OPEN, state=LetterState.DISCARDED) == ([], [])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=6))
def test_moving_twice_moves_once_and_loses_nothing(wanted: list[tuple[int, int]]) -> None:
    whole = [entry(letters(0, 20)), entry(letters(0, 20, first=20), LetterState.DISCARDED)]
    runs = [letters(0, records, first=first) for first, records in wanted]

    moved, changed = move(whole, runs, OPEN, state=LetterState.REPLAYING)
    taken = dict(changed)
    after = [part for found in whole for part in taken.get(found, [found])]

    numbers = {number for first, records in wanted for number in range(first, first + records) if number < 20}
    assert sorted(n for run in moved for n in range(run.first, run.end)) == sorted(numbers)
    assert sorted(n for part in after for n in range(part.letters.first, part.letters.end)) == list(range(40))
    assert move(after, runs, OPEN, state=LetterState.REPLAYING)[0] == []


RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=5)


@given(RUNS, st.booleans(), st.integers(1, 9))
def test_a_replay_numbers_every_letter_once_however_it_is_cut(
    runs: list[tuple[int, int]], newest_first: bool, size: int
) -> None:
    given_letters = [letters(seq, records, first=first) for seq, (first, records) in enumerate(runs)]
    replay = Replay.of(given_letters, newest_first=newest_first)
    expected = [(found.key.seq, n) for found in given_letters for n in range(found.first, found.end)]
    if newest_first:
        expected.reverse()

    found: list[tuple[int, int]] = []
    for start in range(0, replay.records, size):
        for placed in replay.within(Range(start, min(start + size, replay.records))):
            numbers = list(range(placed.letters.first, placed.letters.end))
            assert placed.start == len(found)
            found += [(placed.letters.key.seq, n) for n in (reversed(numbers) if newest_first else numbers)]

    assert found == expected
    assert Replay.from_json(replay.to_json()) == replay


@given(st.sets(st.integers(5, 24)), st.integers(0, 25))
def test_runs_and_the_first_of_them_keep_every_number(numbers: set[int], stop_at: int) -> None:
    runs = runs_of(letters(0, 20, first=5), sorted(numbers))

    def named(found: list[Letters]) -> list[int]:
        return [number for run in found for number in range(run.first, run.end)]

    assert named(runs) == sorted(numbers)
    assert named(list(first_of(runs, stop_at))) == sorted(numbers)[:stop_at]
    assert list(first_of(runs, None)) == runs
    assert all(one.end < other.first for one, other in pairwise(runs))


def test_a_replay_is_a_side_partition_of_its_own_for_each_source() -> None:
    machine = PipelineMachine([Partition("p"), Partition("q")])
    chosen = (letters(0, 3, partition="p"), letters(0, 4, partition="q"), letters(0, 5, partition="dlq:1:p"))
    act = Act(ActKind.REPLAY_LETTERS, letters=chosen)

    events = apply(machine, Act.from_json(act.to_json()), reason="mended")

    assert [(event.kind, event.partition) for event in events] == [
        ("side_partition_started", "dlq:2:p"),
        ("side_partition_started", "dlq:3:q"),
    ]
    assert machine.partitions["dlq:2:p"].limit == 8
    assert machine.partitions["dlq:3:q"].limit == 4
    assert machine.generation == 3


@pytest.mark.parametrize("kind", [ActKind.REPLAY_LETTERS, ActKind.DISCARD_LETTERS])
def test_an_act_on_no_letters_is_refused(kind: ActKind) -> None:
    machine = PipelineMachine([Partition("p")])

    with pytest.raises(LedgerStateError, match="parked any more"):
        apply(machine, Act(kind), reason="twice")

    assert list(machine.partitions) == ["p"]


def test_discarding_says_how_many_of_each_batch() -> None:
    machine = PipelineMachine([Partition("p")])
    act = Act(ActKind.DISCARD_LETTERS, letters=(letters(0, 3), letters(0, 4, kind="Io"), letters(1, 5)))

    events = apply(machine, act, reason="tests")

    assert [(event.seq, event.detail["records"]) for event in events] == [(0, 7), (1, 5)]


def test_a_forgotten_replay_gets_its_number_back() -> None:
    machine = PipelineMachine([Partition("p")], generation=7)

    older, _ = machine.recall("p", 4, Replay((letters(),)))
    newer, _ = machine.recall("p", 9, Replay((letters(),)))

    assert (older.id, newer.id, machine.generation) == ("dlq:4:p", "dlq:9:p", 9)
    assert [side_generation(name) for name in ("dlq:4:p", "p", "dlq:x:p")] == [4, 0, 0]
    assert [BatchKey(4, name, 0).letters for name in ("dlq:4:p", "replay:4:p", "p", "dlq:p")] == [
        True,
        False,
        False,
        False,
    ]


def test_what_a_lost_replay_left_is_at_rest_where_it_was() -> None:
    again = entry(letters(0, 1, partition="dlq:2:p"), LetterState.REPLAYING)

    assert entry(letters()).at_rest is LetterState.PARKED
    assert again.at_rest is LetterState.PARKED_AGAIN


def entry_of(state: LetterState, *, replay: str | None = None, own: Letters | None = None) -> Entry:
    """Ten letters of positions ``[0, 20)``."""
    return Entry(own or letters(), Range(0, 20), state, NOW, 0, replay)


@pytest.mark.parametrize("state", list(LetterState))
def test_only_letters_whose_replay_is_not_done_are_taken_back(state: LetterState) -> None:
    entry = entry_of(state, replay="dlq:2:p")
    expected = [entry] if state is LetterState.REPLAYING else []

    assert replaying_within([entry], [("p", Range(19, 30))]) == expected
    assert replaying_within([entry], [("p", Range(20, 30))]) == []
    assert replaying_within([entry], [("q", Range(0, 30))]) == []


@pytest.mark.parametrize(("again", "delivered"), [(0, 10), (4, 10), (10, 0)])
@pytest.mark.parametrize("state", [LetterState.PARKED_AGAIN, LetterState.DISCARDED])
def test_letters_that_a_replay_parked_again_were_not_delivered(again: int, delivered: int, state: LetterState) -> None:
    failed = Letters(BatchKey(2, "dlq:2:p", 0), "Sink", 0, again, 1, 1)
    entries = [entry_of(LetterState.REPLAYED, replay="dlq:2:p"), *([entry_of(state, own=failed)] if again else [])]

    found = replayed_within(entries, [("p", Range(0, 5))], [])

    assert sum(entry.letters.records for entry in found) == delivered
    later = [*entries, entry_of(LetterState.REPLAYED, replay="dlq:3:p", own=letters(1))]
    assert len(replayed_within(later, [("p", Range(0, 5))], [])) == len(found) + 1
