"""Tests of actions: in every state each has one defined result, and is carried out completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy

import pytest

from airflow_provider_ckpt.core.action import NEED_NEW_EPOCH, NEED_RECEIPTS_READ, Action, ActionKind
from airflow_provider_ckpt.core.apply_action import apply
from airflow_provider_ckpt.core.batch import Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.replay_range import replay_range
from tests.unit.core.machines import NOW, ack, begin, fail, partition_of, receipt_of

KEY = BatchKey(1, "p", 1)
REFUSED = "refused"
OTHER_OWNER = BatchKey(1, "p", 7)


def planned(_: Partition) -> None:
    """Never begun."""


def waiting(partition: Partition) -> None:
    """Planned again after an attempt."""
    fail(partition, begin(partition, 1))


def in_flight(partition: Partition) -> None:
    """An attempt is open."""
    begin(partition, 1)


def held(partition: Partition) -> None:
    """Held before it was ever begun."""
    partition.hold(partition.planned_ticket(1), reason="a person looks")


def held_after_an_attempt(partition: Partition) -> None:
    """Held by policy."""
    partition.hold(begin(partition, 1), reason="exhausted")


def delivered(partition: Partition) -> None:
    """Resolved, waiting behind the batch before it."""
    begin(partition, 1)
    ack(partition, 1)


def rejected(partition: Partition) -> None:
    """Dead-lettered whole."""
    begin(partition, 1)
    ack(partition, 1, Verdict.REJECTED)


def skipped(partition: Partition) -> None:
    """Let go."""
    partition.skip(partition.planned_ticket(1), reason="junk")


def sent(partition: Partition) -> None:
    """Sent at most once, not heard of since."""
    partition.begin(partition.planned_ticket(1), epoch=1, now=NOW, at_most_once=True)


def superseded(partition: Partition) -> None:
    """Given way to an imported receipt."""
    import_receipts(partition, [receipt_of(Batch(OTHER_OWNER, Range(12, 18), attempts=1))])


def below(partition: Partition) -> None:
    """Passed by the checkpoint."""
    for seq in (0, 1):
        begin(partition, seq)
        ack(partition, seq)


SETUPS: list[Callable[[Partition], None]] = [
    planned, waiting, in_flight, held, held_after_an_attempt, delivered, rejected, skipped, sent, superseded, below,
]  # fmt: skip

RESULTS: dict[ActionKind, dict[str, list[str]]] = {
    ActionKind.HOLD: {"planned": ["held"], "waiting": ["held"], "in_flight": ["held"]},
    ActionKind.RELEASE: {"held": ["released"], "held_after_an_attempt": ["released"]},
    ActionKind.SKIP: {
        "planned": ["skipped"],
        "waiting": ["instructed"],
        "in_flight": ["instructed"],
        "held": ["released", "skipped"],
        "held_after_an_attempt": ["released", "instructed"],
    },
    ActionKind.CANCEL: {"in_flight": ["cancelled"]},
}
"""Effect of an action on a batch by its state; an action is refused for the states that are not named."""


def machine_with(setup: Callable[[Partition], None]) -> PipelineState:
    """A pipeline whose batch 1 has been through something; batch 0 and 2 are planned."""
    partition = partition_of(10, 20, 30)
    setup(partition)
    return PipelineState([partition])


def stand(machine: PipelineState) -> object:
    """All there is to know of a pipeline."""
    partitions = {name: deepcopy(vars(partition)) for name, partition in machine.partitions.items()}
    return machine.phase, machine.generation, partitions


def kinds(machine: PipelineState, action: Action) -> list[str]:
    """Carry an act out; the kinds of the events."""
    return [event.kind for event in apply(machine, action, reason="because")]


class TestOnBatches:
    @pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.__name__)
    @pytest.mark.parametrize("kind", RESULTS)
    def test_each_act_has_one_result_in_each_state(self, kind: ActionKind, setup: Callable[[Partition], None]) -> None:
        machine = machine_with(setup)
        expected = RESULTS[kind].get(setup.__name__)
        before = stand(machine)

        if expected is not None:
            assert kinds(machine, Action(kind, (KEY,))) == expected
        else:
            with pytest.raises(LedgerStateError, match=f"{KEY}: it (is .*, not |was never planned, or is below)"):
                apply(machine, Action(kind, (KEY,)), reason="because")
            assert stand(machine) == before

    @pytest.mark.parametrize("kind", RESULTS)
    @pytest.mark.parametrize(
        ("key", "message"),
        [
            (BatchKey(1, "p", 9), "it was never planned, or is below the checkpoint"),
            (BatchKey(1, "q", 1), "there is no partition 'q'"),
            (BatchKey(2, "p", 1), "generation 2 has ended"),
        ],
    )
    def test_a_batch_that_is_not_there_is_refused_and_named(
        self, kind: ActionKind, key: BatchKey, message: str
    ) -> None:
        with pytest.raises(LedgerStateError, match=message):
            apply(machine_with(in_flight), Action(kind, (key,)), reason="because")

    @pytest.mark.parametrize("kind", RESULTS)
    def test_an_act_for_a_generation_that_a_rewind_ended_is_refused(self, kind: ActionKind) -> None:
        machine = machine_with(in_flight)
        apply(machine, Action(ActionKind.REWIND, positions={"p": 0}), reason="bad transform")
        machine.partition("p").plan(Range(0, 10))
        machine.partition("p").plan(Range(10, 20))
        begin(machine.partition("p"), 1, epoch=2)

        with pytest.raises(LedgerStateError, match="generation 1 has ended; the partition is in 2 now"):
            apply(machine, Action(kind, (KEY,)), reason="because")

    def test_several_batches_are_all_done_or_none(self) -> None:
        machine = machine_with(delivered)
        before = stand(machine)

        with pytest.raises(LedgerStateError, match="p#1: it is delivered"):
            apply(machine, Action(ActionKind.HOLD, (BatchKey(1, "p", 0), KEY)), reason="because")
        assert stand(machine) == before

        assert kinds(machine, Action(ActionKind.HOLD, (BatchKey(1, "p", 0), BatchKey(1, "p", 2)))) == ["held", "held"]

    def test_a_batch_that_is_named_twice_is_done_once(self) -> None:
        assert kinds(machine_with(planned), Action(ActionKind.HOLD, (KEY, KEY))) == ["held"]

    def test_releasing_none_in_particular_releases_all_that_are_held(self) -> None:
        machine = machine_with(held)
        partition = machine.partition("p")
        partition.hold(partition.planned_ticket(2), reason="a person looks")

        assert kinds(machine, Action(ActionKind.RELEASE)) == ["released", "released"]
        assert {batch.state for batch in partition.batches.values()} == {BatchState.PLANNED}

    def test_skipping_what_was_begun_has_the_next_attempt_claim_void(self) -> None:
        machine = machine_with(waiting)
        apply(machine, Action(ActionKind.SKIP, (KEY,)), reason="known junk")
        partition = machine.partition("p")

        assert partition.batches[1].instruction is Instruction.VOID
        begin(partition, 1)
        ack(partition, 1, Verdict.VOID)
        assert partition.batches[1].state is BatchState.SKIPPED

    def test_skipping_does_not_undo_a_delivery_that_turns_out_to_have_happened(self) -> None:
        machine = machine_with(in_flight)
        apply(machine, Action(ActionKind.SKIP, (KEY,)), reason="known junk")

        ack(machine.partition("p"), 1)

        assert machine.partition("p").batches[1].state is BatchState.DELIVERED

    def test_skipping_the_first_batch_moves_the_checkpoint_over_what_waited_behind_it(self) -> None:
        machine = machine_with(delivered)

        assert kinds(machine, Action(ActionKind.SKIP, (BatchKey(1, "p", 0),))) == ["skipped", "checkpoint"]
        assert machine.partition("p").committed == 20

    def test_the_reason_is_in_the_event(self) -> None:
        (event,) = apply(machine_with(planned), Action(ActionKind.HOLD, (KEY,)), reason="because")

        assert event.detail == {"reason": "because"}


class TestOnPhases:
    @pytest.mark.parametrize(
        ("kind", "before", "after"),
        [
            (ActionKind.DRAIN, Phase.RUNNING, Phase.DRAINING),
            (ActionKind.DRAIN, Phase.DRAINING, Phase.DRAINING),
            (ActionKind.DRAIN, Phase.STOPPED, None),
            (ActionKind.STOP, Phase.RUNNING, None),
            (ActionKind.STOP, Phase.DRAINING, Phase.STOPPED),
            (ActionKind.STOP, Phase.STOPPED, Phase.STOPPED),
            (ActionKind.FORCE_STOP, Phase.RUNNING, Phase.STOPPED),
            (ActionKind.FORCE_STOP, Phase.DRAINING, Phase.STOPPED),
            (ActionKind.FORCE_STOP, Phase.STOPPED, Phase.STOPPED),
            (ActionKind.RESUME, Phase.RUNNING, Phase.RUNNING),
            (ActionKind.RESUME, Phase.DRAINING, Phase.RUNNING),
            (ActionKind.RESUME, Phase.STOPPED, Phase.RUNNING),
        ],
    )
    def test_each_act_has_one_result_in_each_phase(self, kind: ActionKind, before: Phase, after: Phase | None) -> None:
        machine = PipelineState([partition_of(10)], phase=before)

        if after is None:
            with pytest.raises(LedgerStateError):
                apply(machine, Action(kind), reason="because")
        else:
            apply(machine, Action(kind), reason="because")
        assert machine.phase is (after or before)

    def test_a_stop_is_refused_while_work_is_in_flight_and_a_forced_one_is_not(self) -> None:
        machine = machine_with(in_flight)
        apply(machine, Action(ActionKind.DRAIN), reason="upgrade")

        with pytest.raises(LedgerStateError, match="in flight"):
            apply(machine, Action(ActionKind.STOP), reason="upgrade")
        assert kinds(machine, Action(ActionKind.FORCE_STOP)) == ["abandoned", "phase"]


class TestRewind:
    def two(self) -> PipelineState:
        """Two partitions, delivered to 20 and to 5."""
        other = Partition("q")
        other.plan(Range(0, 5))
        begin(other, 0)
        ack(other, 0)
        machine = PipelineState([partition_of(20), other])
        begin(machine.partition("p"), 0)
        ack(machine.partition("p"), 0)
        return machine

    def test_several_partitions_begin_one_new_generation(self) -> None:
        machine = self.two()

        assert kinds(machine, Action(ActionKind.REWIND, positions={"q": 0, "p": 10})) == ["rewound", "rewound"]
        found = {name: (p.generation, p.committed) for name, p in machine.partitions.items()}
        assert found == {"p": (2, 10), "q": (2, 0)}
        assert machine.generation == 2

    def test_partitions_that_are_not_named_stay_as_they_are(self) -> None:
        machine = self.two()
        apply(machine, Action(ActionKind.REWIND, positions={"p": 10}), reason="bad transform")

        assert (machine.partition("q").generation, machine.partition("q").committed) == (1, 5)

    @pytest.mark.parametrize(
        ("positions", "message"),
        [
            ({"p": 10, "q": 6}, "cannot rewind q"),
            ({"p": 21, "q": 6}, "cannot rewind p, q"),
            ({}, "cannot rewind nothing"),
            ({"p": 10, "r": 0}, "there is no partition 'r'"),
        ],
    )
    def test_if_one_cannot_be_rewound_none_is(self, positions: dict[str, int], message: str) -> None:
        machine = self.two()
        before = stand(machine)

        with pytest.raises(LedgerStateError, match=message):
            apply(machine, Action(ActionKind.REWIND, positions=positions), reason="bad transform")
        assert stand(machine) == before

    def test_a_side_partition_is_not_rewound(self) -> None:
        machine = self.two()
        made, _ = replay_range(machine, SideKind.REPLAY, "p", Range(0, 5))

        with pytest.raises(LedgerStateError, match=f"cannot rewind {made.id}"):
            apply(machine, Action(ActionKind.REWIND, positions={made.id: 0}), reason="bad transform")


class TestTakenBack:
    @pytest.mark.parametrize("kind", [ActionKind.REWIND, ActionKind.RESEND_TO_SINK])
    @pytest.mark.parametrize("planned_to", [0, 4, 10])
    def test_what_a_replay_has_not_delivered_is_given_up_with_the_act(self, kind: ActionKind, planned_to: int) -> None:
        machine = machine_with(delivered)
        side = Partition("dlq:2:p", generation=2, base=0, limit=10)
        machine.partitions[side.id] = side
        if planned_to:
            side.plan(Range(0, planned_to))

        action = Action(kind, positions={"p": 0}, cancelled_replays=(side.id,))
        assert Action.from_json(json.loads(json.dumps(action.to_json()))) == action
        assert "skipped" in kinds(machine, action)

        assert (side.committed, side.unplanned(), side.blocking) == (10, [], {})


class TestReplayAndRecover:
    @pytest.mark.parametrize(("kind", "side"), [(ActionKind.REPLAY, "replay"), (ActionKind.RECOVER, "recovery")])
    def test_each_stretch_gets_a_side_partition_of_its_own(self, kind: ActionKind, side: str) -> None:
        machine = TestRewind().two()

        action = Action(kind, ranges=(("p", Range(0, 5)), ("p", Range(5, 10)), ("q", Range(0, 5))))
        assert kinds(machine, action) == ["side_partition_started"] * 3
        assert set(machine.partitions) == {"p", "q", f"{side}:2:p", f"{side}:3:p", f"{side}:4:q"}

    def test_if_one_stretch_is_still_to_be_delivered_none_is_read_again(self) -> None:
        machine = TestRewind().two()
        before = stand(machine)

        with pytest.raises(LedgerStateError, match="of partition 'q' reaches beyond the checkpoint, 5"):
            apply(machine, Action(ActionKind.REPLAY, ranges=(("p", Range(0, 5)), ("q", Range(0, 6)))), reason="because")
        assert stand(machine) == before


@pytest.mark.parametrize(
    "action",
    [
        Action(ActionKind.HOLD, (KEY, BatchKey(2, "replay:2:p", 0))),
        Action(ActionKind.REWIND, positions={"p": 10}),
        Action(ActionKind.REPLAY, ranges=(("p", Range(0, 5)), ("p", Range(7, 9)))),
        Action(ActionKind.DRAIN),
    ],
    ids=lambda action: action.kind.value,
)
def test_an_act_is_stored_and_comes_back_as_it_was(action: Action) -> None:
    assert Action.from_json(json.loads(json.dumps(action.to_json()))) == action


def test_only_rewind_and_force_stop_wait_for_the_fence() -> None:
    assert {ActionKind.REWIND, ActionKind.FORCE_STOP} == NEED_NEW_EPOCH


def test_what_numbers_a_generation_waits_for_someone_who_has_read_the_receipts() -> None:
    assert {
        ActionKind.REPLAY,
        ActionKind.RECOVER,
        ActionKind.REPLAY_DEAD_LETTERS,
    } == NEED_RECEIPTS_READ - NEED_NEW_EPOCH
