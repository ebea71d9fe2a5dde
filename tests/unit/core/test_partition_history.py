"""Snapshots of a partition's past: which of them are kept."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.core.partition_history import deletable_snapshots
from tests.unit.core.machines import NOW


class TestMarks:
    """Tests of the snapshots that are kept."""

    def test_the_newest_up_to_the_cutoff_and_the_last_of_each_hour(self) -> None:
        cutoff, thin = NOW - timedelta(days=2), NOW - timedelta(days=1)
        minutes = [0, 10, 70, 80, 2000, 2010, 4310, 4320]
        marks = [NOW - timedelta(days=3) + timedelta(minutes=n) for n in minutes]
        gone = deletable_snapshots(marks, cutoff=cutoff, thin_before=thin)
        kept = [minute for minute, mark in zip(minutes, marks, strict=True) if mark not in gone]
        assert kept == [80, 2010, 4310, 4320]

    def test_young_ones_all_stay(self) -> None:
        marks = [NOW + timedelta(minutes=n) for n in range(10)]
        assert deletable_snapshots(marks, cutoff=NOW - timedelta(days=2), thin_before=NOW - timedelta(days=1)) == []
