"""Conformance suite of sources; a connector's tests subclass :class:`SourceConformance` and give it a harness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.record_positions import RecordPositions
from airflow_provider_ckpt.connectors.source_plan import PlannedBatch
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.testing.source_harness import EVERYTHING, Ledger, ShrinkingSourceHarness, SourceHarness


class SourceConformance(ABC):
    """Conformance suite of a source, to be subclassed by the connector's tests.

    The subclass provides a harness, with which the suite adds records to the source and opens the source; see
    :class:`.SourceHarness`.
    """

    @pytest.fixture
    @abstractmethod
    def harness(self, *args: Any) -> SourceHarness:
        """Return the connector's harness, on a source that has no records yet."""

    @pytest.fixture
    def ledger(self, harness: SourceHarness) -> Iterator[Ledger]:
        """Open the source, and yield a simple substitute for the ledger, with which tests plan and read batches."""
        with closing(harness.open()) as source:
            yield Ledger(harness, source)

    def test_it_passes_its_own_check(self, ledger: Ledger) -> None:
        ledger.source.check()

        assert [partition.id for partition in ledger.source.partitions()] == [ledger.partition]

    def test_a_partition_keeps_its_identity_while_the_source_grows(
        self, harness: SourceHarness, ledger: Ledger
    ) -> None:
        before = ledger.source.partitions()
        harness.add(3)

        assert list(ledger.source.partitions()) == list(before)

    def test_an_empty_source_plans_nothing(self, ledger: Ledger) -> None:
        plan = ledger.plan()

        assert list(plan.batches) == []
        assert not plan.more

    def test_ranges_tile_from_the_base_without_a_hole(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(100)
        base = ledger.end

        ledger.plan(7)

        _assert_tiling(base, ledger.planned)

    def test_a_number_of_records_is_obeyed_exactly(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(100)

        ledger.plan(30)

        assert [len(batch) for batch in ledger.read(ledger.planned)] == [30, 30, 30, 10]
        assert [batch.records for batch in ledger.planned] == [30, 30, 30, 10]

    def test_one_record_a_batch(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(5)

        ledger.plan(1)

        assert [len(batch) for batch in ledger.read(ledger.planned)] == [1] * 5

    def test_reading_every_batch_gives_every_record_once_and_in_order(
        self, harness: SourceHarness, ledger: Ledger
    ) -> None:
        harness.add(100)

        ledger.plan(7)

        assert ledger.numbers(ledger.planned) == list(range(100))

    def test_the_source_picks_a_size_itself(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(100)

        ledger.plan(None)

        assert ledger.numbers(ledger.planned) == list(range(100))

    def test_positions_lie_in_the_range_and_never_decrease(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(50)
        ledger.plan(8)

        for batch, records in zip(ledger.planned, ledger.read(ledger.planned), strict=True):
            positions = [position for position, _ in records]
            assert positions == sorted(positions)
            assert all(batch.range.start <= position < batch.range.end for position in positions)

    def test_it_sums_up_what_reading_gives_or_says_that_no_more_can_turn_up(
        self, harness: SourceHarness, ledger: Ledger
    ) -> None:
        harness.add(100)
        ledger.plan(30)

        digests = ledger.source.digests(ledger.partition, [batch.range for batch in ledger.planned])

        if digests is not None:
            read = [[position for position, _ in batch] for batch in ledger.read(ledger.planned)]
            shown = [list(ledger.source.positions(ledger.partition, batch.range)) for batch in ledger.planned]
            assert [digest.count for digest in digests] == [30, 30, 30, 10]
            assert list(digests) == [RecordPositions.of(positions).digest for positions in read]
            assert shown == read

    def test_reading_again_gives_the_same(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(20)
        ledger.plan(6)

        assert ledger.read(ledger.planned) == ledger.read(ledger.planned)

    def test_a_reader_yields_the_columns_of_the_shape(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(3)
        ledger.plan()
        shape = ledger.source.shape()

        with closing(harness.reader(shape)) as reader:
            (task,) = ledger.tasks(ledger.planned)
            (records,) = reader.read(task)

        assert records.schema.names == [POSITION, *(name for name, _ in shape.columns)]
        assert str(records.schema.field(POSITION).type) == "int64"

    def test_locating_changes_neither_key_nor_range(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)
        ledger.plan(4)

        located = ledger.tasks(ledger.planned)

        assert [task.range for task in located] == [batch.range for batch in ledger.planned]
        assert [task.key.seq for task in located] == list(range(len(ledger.planned)))

    def test_a_record_says_where_it_came_from(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(3)
        ledger.plan()

        with closing(harness.reader(ledger.source.shape())) as reader:
            (task,) = ledger.tasks(ledger.planned)
            position = next(iter(reader.read(task))).column(POSITION)[1].as_py()
            origin = reader.origin(task, position)
            aside = replace(task, key=BatchKey(2, f"recovery:2:{task.key.partition}", 0))

            assert {"source-partition", "source-position"} < origin.keys()
            assert reader.origin(aside, position) == origin

    def test_nothing_new_plans_nothing(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)
        ledger.plan()

        assert list(ledger.plan().batches) == []

    def test_what_came_since_is_planned_from_where_the_plan_ended(self, harness: SourceHarness, ledger: Ledger) -> None:
        base = ledger.end
        harness.add(10)
        ledger.plan(4)
        harness.add(7)

        new = ledger.plan(4)

        assert ledger.numbers(new.batches) == list(range(10, 17))
        _assert_tiling(base, ledger.planned)

    def test_max_records_bounds_a_plan_which_says_that_there_is_more(
        self, harness: SourceHarness, ledger: Ledger
    ) -> None:
        harness.add(20)
        base = ledger.end

        first = ledger.plan(4, most=10)
        second = ledger.plan(4)

        assert [batch.records for batch in first.batches] == [4, 4]
        assert first.more
        assert not second.more
        assert ledger.numbers(ledger.planned) == list(range(20))
        _assert_tiling(base, ledger.planned)

    def test_one_batch_is_planned_however_small_max_records_is(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)

        plan = ledger.plan(5, most=1)

        assert [batch.records for batch in plan.batches] == [5]
        assert plan.more

    @pytest.mark.parametrize("number", [1, 3, None])
    def test_a_gap_is_planned_again_up_to_its_end(
        self, harness: SourceHarness, ledger: Ledger, number: int | None
    ) -> None:
        harness.add(20)
        ledger.plan(5)
        gap = ledger.planned[1].range
        before = ledger.numbers(ledger.planned[1:2])

        again = ledger.ask(gap.start, gap.end, number, EVERYTHING)

        _assert_tiling(gap.start, again.batches)
        assert again.batches[-1].range.end == gap.end
        assert ledger.numbers(again.batches) == before

    def test_a_gap_over_several_batches_is_planned_again(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(20)
        ledger.plan(4)
        gap = Range(ledger.planned[1].range.start, ledger.planned[3].range.end)

        again = ledger.ask(gap.start, gap.end, 5, EVERYTHING)

        assert ledger.numbers(again.batches) == list(range(4, 16))
        assert again.batches[-1].range.end == gap.end

    def test_no_batch_ends_beyond_the_closed_bound(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)

        ledger.plan(3)

        assert ledger.planned[-1].range.end <= ledger.bounds.get(ledger.partition, ledger.planned[-1].range.end)

    def test_a_stretch_of_nothing_yields_no_batch_and_the_same_bound(
        self, harness: SourceHarness, ledger: Ledger
    ) -> None:
        harness.add(5)
        ledger.plan()
        harness.add(5)

        nothing = ledger.ask(ledger.end, ledger.end, None, EVERYTHING)

        assert nothing.batches == []
        assert nothing.bounds == ledger.ask(ledger.end, None, None, EVERYTHING).bounds
        assert nothing.bounds[ledger.partition] > ledger.end

    def test_latest_leaves_out_what_is_there(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)
        start = ledger.source.start(ledger.partition, "latest")
        harness.add(5)
        ledger.files += start.files

        plan = ledger.ask(start.position, None, None, EVERYTHING)

        assert ledger.numbers(plan.batches) == list(range(10, 15))

    def test_a_first_position_is_taken_as_it_stands(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(10)

        assert ledger.source.start(ledger.partition, 7).position == 7

    def test_a_source_opens_again_after_it_was_closed(self, harness: SourceHarness, ledger: Ledger) -> None:
        harness.add(5)
        ledger.source.close()

        ledger.plan()

        assert ledger.numbers(ledger.planned) == list(range(5))


class ShrinkingSourceConformance(SourceConformance):
    """Conformance suite of a source from which records may be removed. Their ranges must be planned nevertheless."""

    @pytest.fixture
    @abstractmethod
    def harness(self, *args: Any) -> ShrinkingSourceHarness:
        """Return the connector's harness, on a source that has no records yet."""

    def test_a_range_whose_last_records_are_gone_is_planned_to_its_end(
        self, harness: ShrinkingSourceHarness, ledger: Ledger
    ) -> None:
        harness.add(20)
        ledger.plan(10)
        gap = ledger.planned[0].range
        harness.remove(7, 10)

        again = ledger.ask(gap.start, gap.end, 4, EVERYTHING)

        _assert_tiling(gap.start, again.batches)
        assert again.batches[-1].range.end == gap.end
        assert ledger.numbers(again.batches) == list(range(7))

    def test_a_range_whose_records_are_all_gone_is_planned_and_read_as_empty(
        self, harness: ShrinkingSourceHarness, ledger: Ledger
    ) -> None:
        harness.add(20)
        ledger.plan(10)
        gap = ledger.planned[0].range
        harness.remove(0, 10)

        again = ledger.ask(gap.start, gap.end, 4, EVERYTHING)

        _assert_tiling(gap.start, again.batches)
        assert again.batches[-1].range.end == gap.end
        assert ledger.numbers(again.batches) == []
        assert ledger.numbers(ledger.planned[:1]) == []


def _assert_tiling(base: int, batches: Sequence[PlannedBatch]) -> None:
    assert batches
    assert [batch.range.start for batch in batches] == [base, *(batch.range.end for batch in batches[:-1])]
