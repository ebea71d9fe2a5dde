"""A file that cannot be read blocks only its own records; a non-file and a file changed after delivery are reported."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files import listing
from airflow_provider_ckpt.connectors.files.discovery import Discovery
from airflow_provider_ckpt.connectors.files.local_files import LocalFiles
from airflow_provider_ckpt.connectors.files.parquet_reader import ParquetReader
from airflow_provider_ckpt.connectors.files.parquet_source import ParquetSource
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan, SourceFile
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from tests.integration.connectors.files.files_support import lines, parquet_pipeline, pipeline, put, put_rows


def planned(
    declared: Pipeline, files: tuple[SourceFile, ...] = (), *, gone: int = 0, source: FilesSource | None = None
) -> Plan:
    """Return the plan of a run after everything recorded has been delivered.

    :param files: what is recorded
    :param gone: how many delivered files it was said of before that they are gone
    """
    end = files[-1].base + files[-1].size if files else 0
    kind = ParquetSource if declared.source.has_columns else FilesSource
    states = {"files": {"gone": gone}} if gone else {}
    request = PlanRequest([RangeToPlan("files", end)], None, 10**9, files, states, {"files": end})
    return (source or kind(declared)).plan(request)


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user whom permissions bind, where the test is run by root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def names(plan: Plan) -> list[str]:
    """The names of newly recorded files."""
    return [Path(file.path).name for file in plan.files]


def told(plan: Plan) -> str:
    """Return the refusals of a plan, one per line."""
    return "\n".join(str(error) for error in plan.refused)


class TestOneFileOfMany:
    @pytest.mark.parametrize(
        "spoil", [lambda data: data[:-5], lambda _: b"", lambda _: b"PAR1 it is not", lambda _: b"PARE" * 9]
    )
    def test_that_is_no_whole_parquet_file_costs_itself(self, tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
        declared = parquet_pipeline(tmp_path)
        table = pa.table({"id": range(3)})
        bad = put_rows(tmp_path / "a.parquet", table, at=1)
        whole = bad.read_bytes()
        put(bad, spoil(whole), at=1)
        put_rows(tmp_path / "b.parquet", table, at=2)
        put_rows(tmp_path / "c.parquet", table, at=3)

        plan = planned(declared)

        assert names(plan) == ["b.parquet", "c.parquet"]
        assert [batch.range for batch in plan.batches] == [Range(0, 3), Range(3, 6)]
        assert f"{bad} cannot be read as Parquet" in told(plan)
        put(tmp_path / "a.tmp", whole).rename(bad)
        mended = planned(declared, tuple(plan.files))
        assert (names(mended), mended.refused) == (["a.parquet"], [])
        assert [batch.range for batch in mended.batches] == [Range(6, 9)]

    def test_that_has_other_columns_costs_itself(self, tmp_path: Path) -> None:
        for at, name in enumerate(("a", "b", "c")):
            column = ["x"] if name == "b" else [1]
            put_rows(tmp_path / f"{name}.parquet", pa.table({"id": column}), at=at)

        plan = planned(parquet_pipeline(tmp_path))

        assert names(plan) == ["a.parquet", "c.parquet"]
        assert "b.parquet: column id is string, but bigint in" in told(plan)

    def test_whose_header_does_not_fit_costs_itself(self, tmp_path: Path) -> None:
        put(tmp_path / "a.csv", b"id,name\n1,a\n", at=1)
        put(tmp_path / "b.csv", b"secret,7\n2,b\n", at=2)
        put(tmp_path / "c.csv", b"id,name\n3,c\n", at=3)

        plan = planned(pipeline(tmp_path, decode="csv"))

        assert names(plan) == ["a.csv", "c.csv"]
        assert "b.csv: its header has another name in field 1 than id" in told(plan)
        assert "secret" not in told(plan)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("b.jsonl.gz", "is compressed, by its name"),
            ("b.csv.ZST", "is compressed, by its name"),
            ("b.parquet", "Set source.format: parquet"),
        ],
    )
    @pytest.mark.parametrize("decode", ["json", "csv"])
    def test_that_is_no_text_by_its_name_costs_itself(
        self, tmp_path: Path, decode: str, name: str, message: str
    ) -> None:
        put(tmp_path / "a.txt", b"id,name\n1,a\n", at=1)
        bad = put(tmp_path / name, b"\x1f\x8b\x08\x00", at=2)
        put(tmp_path / "c.txt", b"id,name\n3,c\n", at=3)

        plan = planned(pipeline(tmp_path, decode=decode))

        assert names(plan) == ["a.txt", "c.txt"]
        assert f"{bad} is " in told(plan)
        assert message in told(plan)

    def test_that_may_not_be_read_costs_itself(self) -> None:
        with TemporaryDirectory() as folder:
            inbox = Path(folder)
            inbox.chmod(0o755)
            put(inbox / "a.jsonl", lines(0, 1), at=1).chmod(0)
            put(inbox / "b.jsonl", lines(1, 1), at=2)

            with as_nobody():
                plan = planned(pipeline(inbox))

        assert names(plan) == ["b.jsonl"]
        assert "a.jsonl is not readable for this user. Grant read access to it." in told(plan)

    def test_that_goes_away_between_listing_and_opening_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path / "a.jsonl", lines(0, 1), at=1)
        put(tmp_path / "b.jsonl", lines(1, 1), at=2)

        discover = LocalFiles.discover

        def then_one_goes(*args: Any, **options: Any) -> Discovery:
            found = discover(*args, **options)
            (tmp_path / "a.jsonl").unlink()
            return found

        monkeypatch.setattr(LocalFiles, "discover", then_one_goes)
        plan = planned(pipeline(tmp_path))

        assert (names(plan), plan.refused) == (["b.jsonl"], [])

    def test_that_is_recorded_and_gone_before_it_was_planned_becomes_a_batch_that_expired(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 2), at=1)
        put(tmp_path / "b.jsonl", lines(2, 2), at=2)
        source = FilesSource(pipeline(tmp_path))
        start = source.start("files", "earliest")
        (tmp_path / "a.jsonl").unlink()

        plan = source.plan(PlanRequest([RangeToPlan("files", 0)], None, 10**9, start.files))

        assert [(batch.range, batch.expired) for batch in plan.batches] == [
            (Range(0, 20), True),
            (Range(20, 40), False),
        ]
        task = BatchTask(BatchKey(1, "files", 0), Range(0, 20), 1)
        with pytest.raises(SourceError, match=r"a\.jsonl is gone; .*airflow ckpt skip inbox 'files#0' --reason"):
            source.locate([task], start.files)

    def test_whose_page_is_corrupt_is_named_with_its_row_group(self, tmp_path: Path) -> None:
        table = pa.table({"id": range(3000)})
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
        file = put_rows(tmp_path / "a.parquet", table, group=1000, **options)
        data = bytearray(file.read_bytes())
        at = data.index((1500).to_bytes(8, "little") + (1501).to_bytes(8, "little"))
        data[at] ^= 1  # 1501 instead of 1500, which any reader takes that does not look at the checksum
        put(file, bytes(data))
        declared = parquet_pipeline(tmp_path)
        source = ParquetSource(declared)
        plan = planned(declared, source=source)
        ranges = [Range(0, 1000), Range(1000, 2000), Range(2000, 3000)]
        tasks = [BatchTask(BatchKey(1, "files", seq), span, 1) for seq, span in enumerate(ranges)]
        good, bad, also_good = source.locate(tasks, plan.files)
        reader = ParquetReader(declared, None, source.shape())

        assert sum(batch.num_rows for batch in reader.read(good)) == 1000
        with pytest.raises(SourceError, match=rf"{file}, row group 1 cannot be read as Parquet: .*CRC"):
            list(reader.read(bad))
        assert sum(batch.num_rows for batch in reader.read(also_good)) == 1000


class TestChangedAfterDelivery:
    @pytest.mark.parametrize(
        ("change", "how"),
        [
            (lambda path: put(path, lines(0, 5), at=1_000), "it was appended to or overwritten"),
            (lambda path: put(path, lines(0, 3)), "it was truncated or overwritten"),
            (lambda path: put(path, lines(5, 4), at=2_000), "it was overwritten, or its time was set"),
            (lambda path: put(path.with_suffix(".tmp"), lines(5, 4), at=2_000).rename(path), "it was replaced by"),
        ],
    )
    def test_a_delivered_file_that_is_another_one_now_is_told_and_the_others_go_on(
        self, tmp_path: Path, change: Callable[[Path], Any], how: str
    ) -> None:
        path = put(tmp_path / "a.jsonl", lines(0, 4))
        declared = pipeline(tmp_path)
        first = planned(declared)
        change(path)
        put(tmp_path / "b.jsonl", lines(9, 1))

        plan = planned(declared, tuple(first.files))

        assert names(plan) == ["b.jsonl"]
        (error,) = plan.refused
        assert f"{path} changed after it was delivered: {how}" in str(error)
        assert f"mv {path} {tmp_path / 'a-2.jsonl'}" in str(error)

    def test_what_to_do_with_a_file_that_was_appended_to_delivers_the_rest(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.jsonl", lines(0, 4))
        declared = pipeline(tmp_path)
        first = planned(declared)
        put(path, lines(0, 6), at=2_000)
        (error,) = planned(declared, tuple(first.files)).refused
        commands = str(error.hint).partition("only what was appended: ")[2].partition(", and move")[0]
        assert os.system(commands.replace(", mv", " && mv")) == 0  # the error's own command
        path.rename(tmp_path.with_name("away"))

        plan = planned(declared, tuple(first.files))

        assert names(plan) == ["a-2.jsonl"]
        assert (tmp_path / "a-2.jsonl").read_bytes() == lines(4, 2)
        assert plan.refused == []

    def test_a_delivered_file_that_was_deleted_is_told_of_once(self, tmp_path: Path) -> None:
        for number in range(3):
            put(tmp_path / f"{number}.jsonl", lines(number, 1), at=number)
        declared = pipeline(tmp_path)
        files = tuple(planned(declared).files)
        (tmp_path / "0.jsonl").unlink()
        (tmp_path / "1.jsonl").unlink()

        first = planned(declared, files)
        again = planned(declared, files, gone=first.states["files"]["gone"])
        (tmp_path / "2.jsonl").unlink()
        more = planned(declared, files, gone=2)

        assert first.refused == again.refused == more.refused == []
        assert first.notices == [f"2 delivered files are not there any more, such as {tmp_path / '1.jsonl'}"]
        assert (again.notices, again.states) == ([], {})
        assert more.notices == [f"1 delivered file is not there any more, such as {tmp_path / '2.jsonl'}"]

    def test_a_copy_of_a_delivered_file_with_its_size_and_time_is_told_and_taken_for_it(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.jsonl", lines(0, 4))
        declared = pipeline(tmp_path)
        files = tuple(planned(declared).files)
        put(tmp_path / "a.tmp", lines(0, 4)).rename(path)

        plan = planned(declared, files)

        assert (plan.files, plan.refused) == ([], [])
        assert "1 delivered files were replaced by other files of the same sizes" in plan.notices[0]

    def test_a_hundred_thousand_known_files_are_looked_at_in_seconds(self, tmp_path: Path) -> None:
        inbox = tmp_path / "in"
        inbox.mkdir()
        for number in range(100_000):
            (inbox / f"{number:06d}.jsonl").touch()
        source = FilesSource(pipeline(inbox))
        files = source.start("files", "latest").files
        assert len(files) == 100_000

        began = time.process_time()
        plan = source.plan(PlanRequest([RangeToPlan("files", 0)], None, 10**9, files, {}, {"files": 0}))

        assert (plan.files, plan.refused) == ([], [])
        assert time.process_time() - began < 10  # about one second on a quiet machine

    @pytest.mark.parametrize("pattern", ["", "*.jsonl"])
    def test_a_run_looks_at_known_files_once_and_not_in_every_planning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        asked: list[str] = []

        class Counting:
            """A directory entry that notes who asks for its status."""

            def __init__(self, entry: os.DirEntry[str]) -> None:
                self._entry = entry

            def __getattr__(self, name: str) -> Any:
                if name == "stat":
                    asked.append(self._entry.name)
                return getattr(self._entry, name)

        entries = listing._Walk._entries
        monkeypatch.setattr(listing._Walk, "_entries", lambda *args: map(Counting, entries(*args)))
        for number in range(5):
            put(tmp_path / f"{number}.jsonl", lines(number, 1), at=number)
        declared = pipeline(tmp_path / pattern)
        files = tuple(planned(declared).files)
        (tmp_path / "4.jsonl").unlink()
        put(tmp_path / "3.jsonl", lines(0, 2))
        asked.clear()
        run = FilesSource(declared)

        first = planned(declared, files, source=run)
        assert sorted(asked) == ["0.jsonl", "1.jsonl", "2.jsonl", "3.jsonl"]
        assert "3.jsonl changed after it was delivered" in told(first)
        asked.clear()
        put(tmp_path / "new.jsonl", lines(9, 1))
        second = planned(declared, files, gone=1, source=run)
        assert asked == ["new.jsonl"]
        assert names(second) == ["new.jsonl"]
        assert (second.states, second.notices) == ({}, [])
        asked.clear()
        third = planned(declared, (*files, *second.files), gone=1, source=run)
        assert (asked, third.files, third.states) == ([], [], {})
        assert told(first) == told(second) == told(third)

        assert "3.jsonl changed after it was delivered" in told(planned(declared, files))


class TestWhatIsNoFile:
    def test_a_pattern_that_matches_nothing_is_told(self, tmp_path: Path) -> None:
        put(tmp_path / "a.csv", b"")

        (notice,) = planned(pipeline(tmp_path / "*.jsonl")).notices

        assert notice == (
            f"source.path {tmp_path}/*.jsonl matches no file so far; 1 other files are there: there is nothing to read"
        )
        put(tmp_path / "a.jsonl", lines(0, 1))
        assert planned(pipeline(tmp_path / "*.jsonl")).notices == []

    def test_an_empty_directory_is_told(self, tmp_path: Path) -> None:
        assert planned(pipeline(tmp_path)).notices == [
            f"source.path {tmp_path} holds no file so far: there is nothing to read"
        ]

    @pytest.mark.parametrize(
        ("pattern", "message"),
        [
            (
                "a**.jsonl",
                r"source\.path: \*\* crosses directories only as a whole path component, not in a\*\*\.jsonl",
            ),
            ("**x/*.jsonl", r"source\.path: \*\* crosses directories only"),
            ("[0-9.jsonl", r"source\.path: the \[ in \[0-9\.jsonl is never closed\. Close it"),
        ],
    )
    def test_a_malformed_pattern_is_refused(self, tmp_path: Path, pattern: str, message: str) -> None:
        source = FilesSource(pipeline(tmp_path / pattern))

        with pytest.raises(ConfigError, match=message):
            source.check()
        with pytest.raises(ConfigError, match=message):
            planned(pipeline(tmp_path / pattern))

    def test_a_name_with_brackets_is_a_name(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a[1].jsonl", lines(0, 1))

        assert names(planned(pipeline(path))) == ["a[1].jsonl"]

    @pytest.mark.parametrize(("make", "kind"), [("fifo", "FIFO"), ("socket", "socket"), ("/dev/null", "device")])
    def test_a_path_that_is_no_file_is_refused(self, tmp_path: Path, make: str, kind: str) -> None:
        path = tmp_path / make if "/" not in make else Path(make)
        if make == "fifo":
            os.mkfifo(path)
        elif make == "socket":
            socket.socket(socket.AF_UNIX).bind(str(path))

        with pytest.raises(SourceError, match=f"is a {kind}, not a file or directory"):
            FilesSource(pipeline(path)).check()

    def test_what_is_no_file_among_files_is_told_and_left_out(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "a.jsonl")
        (tmp_path / "b.jsonl").mkdir()
        put(tmp_path / "c.jsonl", lines(0, 1))

        plan = planned(pipeline(tmp_path / "*.jsonl"))

        assert names(plan) == ["c.jsonl"]
        assert [notice.partition(": ")[2] for notice in plan.notices] == [
            f"left out a FIFO, such as '{tmp_path / 'a.jsonl'}'",
            f"left out a directory, such as '{tmp_path / 'b.jsonl'}'",
        ]

    def test_a_start_beyond_the_end_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 4))
        source = FilesSource(pipeline(tmp_path))

        assert source.start("files", 40).position == 40
        with pytest.raises(ConfigError, match="41 is beyond the 40 bytes of all present files"):
            source.start("files", 41)

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("in\0side", "embedded null byte"),
            ("x" * 300, "File name too long"),
            ("/" + "x/" * 3000, "File name too long"),
            ("~nobody-of-that-name/in", "Could not determine home directory"),
            ("{here}/circle/in", "Symlink loop"),
        ],
    )
    def test_a_path_that_cannot_be_is_refused_by_its_key_in_one_line(
        self, tmp_path: Path, path: str, reason: str
    ) -> None:
        (tmp_path / "circle").symlink_to(tmp_path / "circle")

        with pytest.raises(ConfigError, match=rf"source\.path: .* is not a usable path: {reason}\. Correct") as caught:
            FilesSource(pipeline(path.replace("{here}", str(tmp_path))))
        assert len(str(caught.value)) < 400


class TestLinks:
    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        (tmp_path / "in").mkdir()
        (tmp_path / "secret").mkdir()
        put(tmp_path / "secret" / "s.jsonl", lines(7, 1))
        return tmp_path / "secret"

    def test_a_link_to_a_file_is_not_followed_unless_the_pipeline_says_so(self, outside: Path) -> None:
        inbox = outside.with_name("in")
        (inbox / "a.jsonl").symlink_to(outside / "s.jsonl")
        (inbox / "broken.jsonl").symlink_to(outside / "nothing")
        (inbox / "loop.jsonl").symlink_to(inbox / "loop.jsonl")

        plan = planned(pipeline(inbox))

        assert names(plan) == []
        assert "there is nothing but 3 symbolic links, such as" in told(plan)
        assert "write source.follow_links: true" in told(plan)
        assert plan.notices == []
        followed = planned(pipeline(inbox, follow_links=True))
        assert names(followed) == ["a.jsonl"]
        assert "loop.jsonl" in told(followed)

    def test_a_link_among_files_is_told_and_no_error(self, outside: Path) -> None:
        inbox = outside.with_name("in")
        (inbox / "a.jsonl").symlink_to(outside / "s.jsonl")
        put(inbox / "b.jsonl", lines(0, 1))

        plan = planned(pipeline(inbox))

        assert (names(plan), plan.refused) == (["b.jsonl"], [])
        assert "left out a symbolic link, such as" in plan.notices[0]

    def test_a_link_beside_delivered_files_that_were_taken_away_is_no_error(self, outside: Path) -> None:
        inbox = outside.with_name("in")
        path = put(inbox / "a.jsonl", lines(0, 1))
        files = tuple(planned(pipeline(inbox)).files)
        path.unlink()
        (inbox / "newest").symlink_to(outside / "s.jsonl")

        assert planned(pipeline(inbox), files).refused == []

    def test_delivered_files_that_are_links_are_not_taken_for_gone(self, outside: Path) -> None:
        inbox = outside.with_name("in")
        (inbox / "a.jsonl").symlink_to(outside / "s.jsonl")
        files = tuple(planned(pipeline(inbox, follow_links=True)).files)

        plan = planned(pipeline(inbox), files)

        assert "there is nothing but a symbolic link" in told(plan)
        assert (plan.notices, plan.states) == ([], {})

    def test_a_recorded_link_that_is_followed_no_more_waits_for_that_and_is_not_to_be_skipped(
        self, outside: Path
    ) -> None:
        inbox = outside.with_name("in")
        (inbox / "a.jsonl").symlink_to(outside / "s.jsonl")
        put(inbox / "b.jsonl", lines(0, 1), at=2_000)
        files = planned(pipeline(inbox, follow_links=True)).files
        declared = pipeline(inbox)
        source = FilesSource(declared)

        plan = source.plan(PlanRequest([RangeToPlan("files", 0)], None, 10**9, files))

        assert [(batch.range, batch.expired) for batch in plan.batches] == [
            (Range(0, 10), False),
            (Range(10, 20), False),
        ]
        task = BatchTask(BatchKey(1, "files", 0), Range(0, 10), 1)
        with pytest.raises(
            SourceError, match=r"a\.jsonl is a symbolic link.* write source\.follow_links: true"
        ) as caught:
            source.locate([task], files)
        assert caught.value.batch == "files#0"
        assert "skip" not in str(caught.value)
        assert FilesSource(pipeline(inbox, follow_links=True)).locate([task], files)

    @pytest.mark.parametrize("pattern", ["**/*.jsonl", "*/*.jsonl", "sub/**"])
    def test_a_link_to_a_directory_is_not_gone_into(self, outside: Path, pattern: str) -> None:
        inbox = outside.with_name("in")
        (inbox / "sub").mkdir()
        (inbox / "sub" / "below").symlink_to(outside)
        (inbox / "linked").symlink_to(outside)

        assert names(planned(pipeline(inbox / pattern))) == []

    def test_links_that_lead_back_end(self, outside: Path) -> None:
        inbox = outside.with_name("in")
        put(inbox / "a.jsonl", lines(0, 1))
        (inbox / "again").symlink_to(inbox)

        assert names(planned(pipeline(inbox / "**" / "*.jsonl", follow_links=True))) == ["a.jsonl"]

    @pytest.mark.parametrize("where", ["file", "parent"])
    def test_a_link_that_takes_a_recorded_file_s_place_is_not_read(self, outside: Path, where: str) -> None:
        inbox = outside.with_name("in")
        (inbox / "sub").mkdir()
        path = put(inbox / "sub" / "s.jsonl", lines(0, 1))
        declared = pipeline(inbox / "**" / "*.jsonl")
        source = FilesSource(declared)
        plan = planned(declared, source=source)
        (task,) = source.locate([BatchTask(BatchKey(1, "files", 0), Range(0, 10), 1)], plan.files)
        if where == "file":
            path.unlink()
            path.symlink_to(outside / "s.jsonl")
        else:
            path.parent.rename(inbox / "_aside")
            (inbox / "sub").symlink_to(outside)

        with pytest.raises(CkptError, match=r"s\.jsonl changed after it was discovered"):
            source.locate([task], plan.files)
        with pytest.raises(CkptError, match=r"s\.jsonl changed after it was discovered"):
            list(FilesReader(declared, None, source.shape()).read(task))

    @pytest.mark.parametrize("decode", ["json", "csv"])
    def test_a_fifo_that_takes_a_recorded_file_s_place_blocks_nobody(self, tmp_path: Path, decode: str) -> None:
        path = put(tmp_path / "a", b"id,name\n1,a\n")
        declared = pipeline(tmp_path, decode=decode)
        source = FilesSource(declared)
        plan = planned(declared, source=source)
        path.unlink()
        os.mkfifo(path)

        with pytest.raises(SourceError, match="changed after it was discovered"):
            source.locate([BatchTask(BatchKey(1, "files", 0), plan.batches[0].range, 1)], plan.files)
