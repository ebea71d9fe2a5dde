"""A rewind starts a new generation at an earlier position."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.rewind import rewind
from tests.unit.core.machines import ack, begin, partition_of


class TestRewind:
    def rewound(self) -> Partition:
        """Delivered to 20, then planned, resolved and held work beyond; rewound to 5 as generation 2."""
        partition = partition_of(10, 20, 30, 40, 50)
        for seq in (0, 1, 3):
            begin(partition, seq)
            ack(partition, seq)
        partition.hold(partition.planned_ticket(4), reason="a person looks")
        partition.passed = []
        rewind(partition, 5, generation=2, reason="bad transform")
        return partition

    def test_it_begins_a_new_generation_at_the_position(self) -> None:
        partition = self.rewound()

        assert (partition.generation, partition.base, partition.committed) == (2, 5, 5)
        assert (partition.next_seq, partition.planned_end, partition.batches) == (0, 5, {})

    def test_what_was_resolved_beyond_the_checkpoint_is_handed_over_with_its_verdict(self) -> None:
        assert [(b.key, b.state) for b in self.rewound().passed] == [(BatchKey(1, "p", 3), BatchState.DELIVERED)]

    def test_unresolved_work_is_superseded_and_the_rewind_says_why(self) -> None:
        partition = partition_of(10, 20)
        begin(partition, 0)

        events = rewind(partition, 0, generation=4, reason="bad transform")

        assert [(event.kind, event.generation, event.seq) for event in events] == [
            ("superseded", 1, 0),
            ("superseded", 1, 1),
            ("rewound", 4, None),
        ]
        assert events[-1].detail == {
            "before": {"generation": 1, "committed": 0},
            "after": {"generation": 4, "committed": 0},
            "reason": "bad transform",
        }

    def test_the_new_generation_has_numbers_of_its_own(self) -> None:
        partition = self.rewound()
        partition.plan(Range(5, 10))

        assert partition.batches[0].key == BatchKey(2, "p", 0)

    @pytest.mark.parametrize(("to", "generation"), [(21, 2), (20, 1), (0, 0)])
    def test_one_ahead_of_the_checkpoint_or_without_a_new_generation_is_refused(self, to: int, generation: int) -> None:
        partition = partition_of(20)
        begin(partition, 0)
        ack(partition, 0)

        with pytest.raises(LedgerStateError, match=f"cannot be rewound to {to} in generation {generation}"):
            rewind(partition, to, generation=generation, reason="bad transform")
        assert (partition.generation, partition.committed) == (1, 20)
