"""The files source cuts at record boundaries and yields every record unchanged, with its position."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.files import reader as files_reader
from airflow_provider_ckpt.connectors.files import source as files_source
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.record_ends import scan_records
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.files.split import split_by_size
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.connectors.files.files_support import Ledger, lines, pipeline, put


class TestCutting:
    def test_a_number_of_records_is_obeyed_exactly(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 7).rstrip(b"\n"), at=1)
        put(tmp_path / "b.jsonl", lines(7, 4), at=2)
        ledger = Ledger(pipeline(tmp_path))

        plan = ledger.plan(3)

        assert [batch.records for batch in plan.batches] == [3, 3, 1, 3, 1]
        assert [len(batch) for batch in ledger.read()] == [3, 3, 1, 3, 1]

    def test_planning_stops_at_max_records_and_goes_on_from_there(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 10))
        ledger = Ledger(pipeline(tmp_path))

        turns = []
        while True:
            plan = ledger.plan(3, max_records=7)
            turns.append([batch.records for batch in plan.batches])
            if not plan.more:
                break

        assert turns == [[3, 3], [3, 1]]
        assert len(ledger.values()) == 10

    def test_one_batch_is_planned_however_small_max_records_is(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 10))

        plan = Ledger(pipeline(tmp_path)).plan(5, max_records=1)

        assert [batch.records for batch in plan.batches] == [5]
        assert plan.more

    def test_auto_cuts_big_files_into_pieces_of_about_8_mib(self, tmp_path: Path) -> None:
        count = 300_000
        put(tmp_path / "big.jsonl", b"".join(b'{"id": %d, "name": "%s"}\n' % (n, b"x" * 50) for n in range(count)))
        ledger = Ledger(pipeline(tmp_path))

        plan = ledger.plan()

        sizes = [span.end - span.start for span in ledger.planned]
        assert len(sizes) == 3
        assert max(sizes) - min(sizes) < 1000
        assert abs(sum(batch.records or 0 for batch in plan.batches) - count) < count * 0.05
        assert len(ledger.values()) == count

    def test_a_gap_is_planned_again_just_as_far_as_asked(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 9), at=1)
        put(tmp_path / "b.jsonl", lines(0, 9), at=2)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()

        plan = FilesSource(ledger.pipeline).plan(PlanRequest([RangeToPlan("files", 70, 110)], 100, 100, ledger.files))

        assert [batch.range for batch in plan.batches] == [Range(70, 90), Range(90, 110)]


class TestReading:
    def read(self, tmp_path: Path, data: bytes, number: int | None = None) -> list[bytes]:
        put(tmp_path / "a.jsonl", data)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan(number)
        return ledger.values()

    def test_positions_are_the_bytes_where_records_begin(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", b"one\ntwo\n", at=1)
        put(tmp_path / "b.jsonl", b"three\r\nfour", at=2)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()

        assert ledger.read() == [[(0, b"one"), (4, b"two")], [(8, b"three"), (15, b"four")]]

    @pytest.mark.parametrize("number", [None, 1, 2])
    def test_records_keep_their_bytes_and_empty_lines_are_records(self, tmp_path: Path, number: int | None) -> None:
        data = b"\xef\xbb\xbffirst\n\n\r\n\xff\xfe\rx\nlast\r\r\n"

        assert self.read(tmp_path, data, number) == [b"first", b"", b"", b"\xff\xfe\rx", b"last\r"]

    @pytest.mark.parametrize("decode", ["json", "csv"])
    def test_a_file_that_holds_a_byte_order_mark_alone_holds_no_record(self, tmp_path: Path, decode: str) -> None:
        put(tmp_path / "a", b"\xef\xbb\xbf")
        ledger = Ledger(pipeline(tmp_path, decode=decode))
        ledger.plan()

        assert ledger.read() == [[]]

    def test_a_record_of_ten_megabytes_and_more_arrives_whole(self, tmp_path: Path) -> None:
        big = b'"' + b"x" * 20_000_000 + b'"'

        assert self.read(tmp_path, b"small\n" + big + b"\nsmall\n" + big) == [b"small", big, b"small", big]

    def test_a_range_may_span_files(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 2), at=1)
        put(tmp_path / "b.jsonl", lines(2, 2), at=2)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        ledger.planned = [Range(10, 30)]

        assert ledger.read() == [[(10, b'{"id": 1}'), (20, b'{"id": 2}')]]

    def test_a_range_beyond_the_recorded_files_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 2))
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        ledger.planned = [Range(10, 30)]

        with pytest.raises(SourceError, match=r"of files#0 is beyond the 20 bytes of all recorded files"):
            ledger.tasks()

    def test_a_dead_letter_names_the_file_and_the_byte_in_it(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 2), at=1)
        second = put(tmp_path / "b.jsonl", lines(2, 2), at=2)
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        reader = FilesReader(ledger.pipeline, None, FilesSource(ledger.pipeline).shape())

        origin = reader.origin(ledger.tasks()[1], 30)

        assert origin == {"source-file": str(second), "source-partition": "files", "source-position": "10"}

    def test_arrow_batches_stay_small(self, tmp_path: Path) -> None:
        put(tmp_path / "a.jsonl", lines(0, 50_000))
        ledger = Ledger(pipeline(tmp_path))
        ledger.plan()
        reader = FilesReader(ledger.pipeline, None, FilesSource(ledger.pipeline).shape())

        sizes = [records.num_rows for records in reader.read(replace(ledger.tasks()[0]))]

        assert sizes == [20_000, 20_000, 10_000]


@settings(max_examples=150, deadline=None)
@given(
    data=st.text(alphabet='a,"\r\n', min_size=1, max_size=40).map(str.encode),
    decode=st.sampled_from(["json", "csv"]),
    number=st.sampled_from([None, 1, 2, 5]),
    block=st.sampled_from([1, 3, 7, 1 << 20]),
    target=st.sampled_from([4, 11, 1 << 20]),
)
def test_any_bytes_come_back_as_the_records_they_are(
    data: bytes, decode: str, number: int | None, block: int, target: int
) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_reader, "scan_records", partial(scan_records, block=block))
        patch.setattr(files_source, "split_by_size", partial(split_by_size, target=target))
        put(Path(directory) / "a", data)
        ledger = Ledger(pipeline(directory, decode=decode, header=False))
        plan = ledger.plan(number)
        batches = ledger.read()

    assert [position for batch in batches for position, _ in batch] == [start for start, _ in simple(data, decode)]
    assert [value for batch in batches for _, value in batch] == [value for _, value in simple(data, decode)]
    if number is not None or decode == "csv":
        assert [batch.records for batch in plan.batches] == [len(batch) for batch in batches]


def simple(data: bytes, decode: str) -> list[tuple[int, bytes]]:
    """Position and bytes of every record, byte by byte; a quote opens where a field begins, or one has just closed."""
    records, start, is_open, before = [], 0, False, ord("\n")
    for at, byte in enumerate(data):
        if byte == ord('"') and decode == "csv":
            was_open, is_open = is_open, not is_open and before in (ord("\n"), ord(","), ord('"'))
            before = ord('"') if was_open else ord("x")
            continue
        before = byte
        if byte == ord("\n") and not is_open:
            records.append((start, data[start:at].removesuffix(b"\r")))
            start = at + 1
    return records + ([(start, data[start:])] if start < len(data) else [])
