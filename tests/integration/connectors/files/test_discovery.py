"""The files source discovers each file once, in an order that stays the same, and refuses a changed file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from tests.integration.connectors.files.files_support import Ledger, lines, pipeline, put


class TestDiscovery:
    def test_files_are_ordered_by_time_then_name_and_tile_without_gaps(self, tmp_path: Path) -> None:
        put(tmp_path / "b.jsonl", lines(0, 3), at=10)
        put(tmp_path / "a.jsonl", lines(3, 2), at=10)
        put(tmp_path / "z.jsonl", lines(5, 1), at=5)
        put(tmp_path / "empty.jsonl", b"", at=7)
        ledger = Ledger(pipeline(tmp_path))

        plan = ledger.plan()

        assert [Path(file.path).name for file in plan.files] == ["z.jsonl", "empty.jsonl", "a.jsonl", "b.jsonl"]
        assert [file.ordinal for file in plan.files] == [0, 1, 2, 3]
        assert ledger.planned[0].start == 0
        assert all(a.end == b.start for a, b in zip(ledger.planned, ledger.planned[1:], strict=False))
        assert plan.bounds == {"files": ledger.end} == {"files": sum(file.size for file in plan.files)}
        assert ledger.values() == [b'{"id": %d}' % n for n in (5, 3, 4, 0, 1, 2)]

    def test_a_late_file_sorts_after_all_known_ones_whatever_its_time(self, tmp_path: Path) -> None:
        put(tmp_path / "b.jsonl", lines(0, 1), at=100)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        put(tmp_path / "a.jsonl", lines(1, 1), at=1)

        plan = ledger.plan()

        assert [(file.ordinal, file.base) for file in plan.files] == [(1, ledger.files[0].size)]
        assert len(ledger.planned) == 2
        assert ledger.values() == [b'{"id": 0}', b'{"id": 1}']

    def test_nothing_new_plans_nothing(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 3))
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()

        plan = ledger.plan()

        assert (plan.batches, plan.files, plan.more) == ([], [], False)

    def test_unfinished_hidden_and_nested_files_are_left_alone(self, tmp_path: Path) -> None:
        for name in ("a.tmp", "b.inprogress", "c.part", ".d", "_e"):
            put(tmp_path / name, lines(0, 1))
        (tmp_path / "below").mkdir()
        put(tmp_path / "below" / "f.jsonl", lines(0, 1))

        assert Ledger(pipeline(tmp_path)).plan().files == []

    def test_a_pattern_crosses_directories(self, tmp_path: Path) -> None:
        (tmp_path / "2013" / "01").mkdir(parents=True)
        (tmp_path / "_hidden").mkdir()
        for place in ("2013/01/a.jsonl", "2013/b.jsonl", "_hidden/c.jsonl", "2013/d.csv"):
            put(tmp_path / place, lines(0, 1))

        plan = Ledger(pipeline(tmp_path / "**" / "*.jsonl")).plan()

        assert sorted(Path(file.path).name for file in plan.files) == ["a.jsonl", "b.jsonl"]

    def test_a_pattern_that_matches_nothing_is_empty_but_its_directory_must_exist(self, tmp_path: Path) -> None:
        assert Ledger(pipeline(tmp_path / "*.csv")).plan().files == []
        with pytest.raises(SourceError, match=r"there is no directory .*absent"):
            FilesSource(pipeline(tmp_path / "absent" / "*.csv")).check()

    def test_a_missing_directory_is_a_clear_error(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"there is no directory .*absent\. Create it"):
            FilesSource(pipeline(tmp_path / "absent")).check()

    def test_a_file_whose_name_is_not_utf8_is_named(self, tmp_path: Path) -> None:
        (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(b"{}\n")
        with pytest.raises(SourceError, match=r"caf\\udce9\.jsonl' is not UTF-8.* Rename the file"):
            Ledger(pipeline(tmp_path)).plan()

    def test_the_partition_is_identified_by_the_resolved_directory(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)

        (partition,) = FilesSource(pipeline(tmp_path / "link")).partitions()

        assert (partition.id, partition.identity) == ("files", str(tmp_path.resolve()))

    def test_another_scheme_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="hdfs:// locations are not supported"):
            FilesSource(pipeline("hdfs://bucket/in"))


class TestStart:
    def test_latest_skips_what_is_there_and_reads_what_comes(self, tmp_path: Path) -> None:
        put(tmp_path / "old.jsonl", lines(0, 5), at=50)
        ledger = Ledger(pipeline(tmp_path))
        ledger.start("latest")
        put(tmp_path / "new.jsonl", lines(5, 2), at=1)  # older by its time, yet found later

        ledger.plan()

        assert [Path(file.path).name for file in ledger.files] == ["old.jsonl", "new.jsonl"]
        assert ledger.values() == [b'{"id": 5}', b'{"id": 6}']

    def test_a_position_must_be_where_a_record_begins(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 3))
        ledger = Ledger(pipeline(tmp_path))
        assert FilesSource(ledger.pipeline).start("files", "earliest").position == 0
        ledger.start(10)
        ledger.plan()
        assert ledger.values() == [b'{"id": 1}', b'{"id": 2}']

        with pytest.raises(SourceError, match=r"byte 4 of .*a\.jsonl, where no record begins"):
            FilesSource(ledger.pipeline).plan(PlanRequest([RangeToPlan("files", 4)], None, 10))
        with pytest.raises(ConfigError, match="-1 is before the first byte"):
            FilesSource(ledger.pipeline).start("files", -1)


class TestChangedFiles:
    @pytest.mark.parametrize("change", ["grow", "touch", "replace"])
    def test_a_changed_file_is_refused_by_plan_locate_and_read(self, tmp_path: Path, change: str) -> None:
        path = put(tmp_path / "a.jsonl", lines(0, 4))
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan(2, max_records=2)
        task = ledger.tasks()[0]
        if change == "grow":
            put(path, lines(0, 5))
        elif change == "touch":
            os.utime(path, (2_000, 2_000))
        else:
            put(tmp_path / "b.tmp", lines(9, 4)).rename(path)

        (rest,) = ledger.plan(2).batches
        assert (rest.range, rest.expired) == (Range(20, 40), True)
        with pytest.raises(SourceError, match=r"a\.jsonl changed after it was discovered: recorded 40 bytes") as caught:
            ledger.tasks()
        assert "Put the recorded file back" in str(caught.value)
        assert "airflow ckpt skip inbox 'files#0' --reason" in str(caught.value)
        with pytest.raises(SourceError, match="changed"):
            list(FilesReader(ledger.pipeline, None, FilesSource(ledger.pipeline).shape()).read(task))

    def test_a_file_that_is_gone_is_refused_unless_nobody_needs_it(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 2), at=1)
        put(tmp_path / "b.jsonl", lines(2, 2), at=2)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        (tmp_path / "a.jsonl").unlink()

        assert ledger.plan().batches == []
        with pytest.raises(SourceError, match=r"a\.jsonl is gone; it was recorded with 20 bytes"):
            ledger.tasks()
        void = BatchTask(BatchKey(1, "files", 0), ledger.planned[0], 1, Instruction.VOID)
        assert FilesSource(ledger.pipeline).locate([void], ledger.files)[0].detail == {"segments": []}

    def test_a_file_cut_while_it_is_read_is_refused(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.jsonl", lines(0, 2_000_000))
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan(2_000_000)
        (task,) = ledger.tasks()
        records = FilesReader(ledger.pipeline, None, FilesSource(ledger.pipeline).shape()).read(task)
        next(records)
        os.truncate(path, 10_000_000)

        with pytest.raises(SourceError, match="truncated after its discovery"):
            list(records)
