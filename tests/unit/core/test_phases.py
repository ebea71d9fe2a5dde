"""Phases of a pipeline: drain, stop, force stop and resume."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.ranges import Range
from tests.unit.core.machines import NOW, ack, begin, partition_of


def pipeline(*partitions: Partition, phase: Phase = Phase.RUNNING) -> PipelineState:
    """A pipeline of these partitions, or of one that has two planned batches."""
    return PipelineState(partitions or [partition_of(10, 20)], phase=phase)


class TestDrain:
    def test_nothing_is_planned_or_begun_any_more(self) -> None:
        machine = pipeline()
        partition = machine.partition("p")

        machine.drain(reason="upgrade")

        assert machine.phase is Phase.DRAINING
        with pytest.raises(LedgerStateError, match="nothing is planned while draining"):
            partition.plan(Range(20, 30))
        with pytest.raises(LedgerStateError, match="nothing is started while draining"):
            partition.begin(partition.planned_ticket(0), epoch=1, now=NOW)

    def test_what_is_in_flight_ends_and_moves_the_checkpoint(self) -> None:
        machine = pipeline()
        begin(machine.partition("p"), 0)

        machine.drain(reason="upgrade")
        ack(machine.partition("p"), 0)

        assert (machine.in_flight, machine.partition("p").committed) == (0, 10)

    def test_it_says_why_and_what_was_before(self) -> None:
        (event,) = pipeline().drain(reason="upgrade")

        assert event.kind == "phase"
        assert event.detail == {"before": "running", "after": "draining", "reason": "upgrade", "force": False}

    def test_a_second_drain_changes_nothing(self) -> None:
        machine = pipeline()
        machine.drain(reason="upgrade")

        assert [event.kind for event in machine.drain(reason="again")] == ["phase_unchanged"]

    def test_a_stopped_pipeline_is_not_drained(self) -> None:
        with pytest.raises(LedgerStateError, match=r"it is stopped, so there is nothing to drain.*Resume it first"):
            pipeline(phase=Phase.STOPPED).drain(reason="upgrade")

    def test_all_partitions_drain_together(self) -> None:
        machine = pipeline(Partition("p"), Partition("q"))
        machine.drain(reason="upgrade")

        assert {partition.phase for partition in machine.partitions.values()} == {Phase.DRAINING}


class TestStop:
    def test_a_running_pipeline_is_not_stopped_before_it_was_drained(self) -> None:
        with pytest.raises(LedgerStateError, match=r"it is running.*Drain it first"):
            pipeline().stop(reason="upgrade")

    def test_it_is_refused_while_anything_is_in_flight_in_any_partition(self) -> None:
        other = partition_of(5)
        other.id = "q"
        begin(other, 0)
        machine = pipeline(partition_of(10), other)
        machine.drain(reason="upgrade")

        with pytest.raises(LedgerStateError, match="1 batches are in flight"):
            machine.stop(reason="upgrade")
        assert machine.phase is Phase.DRAINING

    def test_planned_and_held_work_may_remain_and_goes_on_blocking(self) -> None:
        machine = pipeline()
        partition = machine.partition("p")
        partition.hold(partition.planned_ticket(0), reason="a person looks")
        machine.drain(reason="upgrade")

        machine.stop(reason="upgrade")

        assert machine.phase is Phase.STOPPED
        assert {seq: batch.state for seq, batch in partition.blocking.items()} == {
            0: BatchState.HELD,
            1: BatchState.PLANNED,
        }
        assert partition.committed == 0

    def test_a_second_stop_changes_nothing(self) -> None:
        assert [event.kind for event in pipeline(phase=Phase.STOPPED).stop(reason="again")] == ["phase_unchanged"]


class TestForceStop:
    @pytest.mark.parametrize("phase", Phase)
    def test_it_abandons_what_is_in_flight_and_keeps_the_checkpoint(self, phase: Phase) -> None:
        partition = partition_of(10, 20, 30)
        for seq in range(3):
            begin(partition, seq)
        ack(partition, 0)
        ack(partition, 2)
        machine = pipeline(partition, phase=phase)

        events = machine.force_stop(reason="now")

        assert (machine.phase, machine.in_flight, partition.committed) == (Phase.STOPPED, 0, 10)
        assert [event.kind for event in events][:1] == ["abandoned"]
        assert partition.batches[1].state is BatchState.PLANNED

    def test_an_abandoned_attempt_is_not_counted(self) -> None:
        partition = partition_of(10)
        begin(partition, 0)

        pipeline(partition).force_stop(reason="now")

        assert (partition.batches[0].failures, partition.batches[0].attempts) == (0, 1)

    def test_its_event_says_that_it_was_forced(self) -> None:
        (event,) = pipeline().force_stop(reason="now")

        assert event.detail == {"before": "running", "after": "stopped", "reason": "now", "force": True}

    def test_a_receipt_of_an_abandoned_attempt_still_counts(self) -> None:
        partition = partition_of(10)
        begin(partition, 0)
        pipeline(partition).force_stop(reason="now")

        assert ack(partition, 0) == ["acked", "checkpoint"]


class TestResume:
    @pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.STOPPED])
    def test_it_leads_back_to_running_from_anywhere(self, phase: Phase) -> None:
        machine = pipeline(phase=phase)

        machine.resume(reason="upgraded")
        begin(machine.partition("p"), 0)

        assert machine.phase is Phase.RUNNING
        assert machine.in_flight == 1

    def test_a_running_pipeline_has_nothing_to_resume(self) -> None:
        assert [event.kind for event in pipeline().resume(reason="upgraded")] == ["phase_unchanged"]


class TestPartitions:
    def test_a_loaded_pipeline_hands_its_phase_to_its_partitions(self) -> None:
        assert pipeline(phase=Phase.STOPPED).partition("p").phase is Phase.STOPPED

    def test_its_generation_is_the_newest_of_all(self) -> None:
        assert PipelineState([Partition("p", generation=3), Partition("q")], generation=2).generation == 3

    def test_an_unknown_partition_is_refused_and_the_known_ones_named(self) -> None:
        with pytest.raises(LedgerStateError, match=r"there is no partition 'q'.*Known: p"):
            pipeline().partition("q")

    def test_a_pipeline_without_partitions_says_so(self) -> None:
        with pytest.raises(LedgerStateError, match="Known: none"):
            PipelineState().partition("q")
