"""Side partitions, which read a range again or replay dead letters."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_range import replay_range
from tests.unit.core.machines import ack, begin, partition_of


class TestReRead:
    def delivered(self, end: int = 20) -> PipelineState:
        """A pipeline whose checkpoint stands at ``end``."""
        partition = partition_of(end)
        begin(partition, 0)
        ack(partition, 0)
        return PipelineState([partition])

    @pytest.mark.parametrize("side", SideKind)
    def test_one_reads_a_stretch_once_more_in_an_order_of_its_own(self, side: SideKind) -> None:
        machine = self.delivered()

        made, (event,) = replay_range(machine, side, "p", Range(5, 15))

        assert (made.id, made.generation, machine.generation) == (f"{side}:2:p", 2, 2)
        assert (made.base, made.committed, made.limit, made.next_seq) == (5, 5, 15, 0)
        assert (event.kind, event.partition, event.detail) == (
            "side_partition_started",
            made.id,
            {"range": [5, 15], "source": "p"},
        )
        assert machine.partition("p").committed == 20

    def test_its_batches_are_known_as_side_batches_of_the_source(self) -> None:
        made, _ = replay_range(self.delivered(), SideKind.REPLAY, "p", Range(5, 15))
        made.plan(Range(5, 15))

        key = made.batches[0].key
        assert (key.is_side_partition, key.source) == (True, "p")
        assert (BatchKey(1, "p", 0).is_side_partition, BatchKey(1, "p", 0).source) == (False, "p")

    def test_it_ends_where_its_stretch_ends(self) -> None:
        made, _ = replay_range(self.delivered(), SideKind.REPLAY, "p", Range(5, 15))

        with pytest.raises(LedgerStateError, match="reaches beyond 15, where this partition ends"):
            made.plan(Range(5, 16))

    def test_it_is_in_the_phase_of_the_pipeline(self) -> None:
        machine = self.delivered()
        machine.drain(reason="upgrade")

        assert replay_range(machine, SideKind.REPLAY, "p", Range(5, 15))[0].phase is Phase.DRAINING

    def test_two_of_one_stretch_do_not_meet(self) -> None:
        machine = self.delivered()
        one, _ = replay_range(machine, SideKind.REPLAY, "p", Range(5, 15))
        other, _ = replay_range(machine, SideKind.REPLAY, "p", Range(5, 15))

        assert {one.id, other.id} == {"replay:2:p", "replay:3:p"}

    def test_what_lies_beyond_the_checkpoint_is_not_read_once_more(self) -> None:
        machine = self.delivered()

        with pytest.raises(
            LedgerStateError, match=r"reaches beyond the checkpoint, 20.*End the range at the checkpoint"
        ):
            replay_range(machine, SideKind.REPLAY, "p", Range(15, 21))
        assert (machine.generation, set(machine.partitions)) == (1, {"p"})

    def test_a_side_partition_has_no_side_partitions(self) -> None:
        machine = self.delivered()
        made, _ = replay_range(machine, SideKind.REPLAY, "p", Range(5, 15))

        with pytest.raises(LedgerStateError, match=r"is a side partition.*Name the source partition itself"):
            replay_range(machine, SideKind.REPLAY, made.id, Range(5, 6))
