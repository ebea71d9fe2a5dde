"""Records of CSV end where Python's csv module ends them, for blocks of any size; a bare quote breaks one record."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.files.record_ends import scan_records

PIECES = st.sampled_from(['"', '""', ",", "\n", "a", '"a"', '"a\nb"', '"a,""b"', ",\n", 'six" nails', "é"])


def ends(data: bytes, *, delimiter: bytes | None = b",", block: int = 8 << 20) -> list[int]:
    """Return the offsets at which records end."""
    file = io.BytesIO(data)
    file.name = "test"
    found: list[int] = []
    at = 0
    for part, offsets in scan_records(file, 0, len(data), delimiter=delimiter, block=block):
        found += [at + int(offset) for offset in offsets]
        at += len(part)
    return found


def python_says(text: str) -> list[int]:
    """Return the offsets at which csv.reader ends records; only records that end with a newline count."""
    lines = text.splitlines(keepends=True)
    reader = csv.reader(iter(lines))
    found = [reader.line_num for _ in reader]
    places = [sum(len(line.encode()) for line in lines[:number]) for number in found]
    is_open = "".join(lines) and not text.endswith("\n")
    return places[:-1] if is_open else places


@settings(deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join), st.integers(1, 7))
@example('""a","\n', 1)
def test_records_end_where_python_ends_them_however_the_file_is_cut_into_blocks(text: str, block: int) -> None:
    whole = ends(text.encode())
    assert ends(text.encode(), block=block) == whole
    expected = python_says(text)
    if whole != expected:  # quotes that are never closed reach to the end, and so end no record
        assert whole == expected[:-1]
        assert len(python_says(f"{text}more\n")) == len(expected)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b'1,six" nails,2\n2,b,3\n3,c,4\n', 3),
        (b'1,"a"b,2\n2,b,3\n', 2),
        (b'1,a""b,2\n2,"x\ny",3\n', 2),
        (b'\xef\xbb\xbf"a\nb",2\n2,b\n', 2),
        (b'1, "a\n2, b"\n', 2),
        (b'1,"""\n""",2\n', 1),
        (b'1,"a,2\n2,b,3\n', 0),
    ],
)
def test_only_a_quote_where_a_field_begins_makes_newlines_data(data: bytes, number: int) -> None:
    assert len(ends(data)) == number
    assert ends(data, block=1) == ends(data)


def test_the_delimiter_says_where_a_field_begins() -> None:
    assert len(ends(b'1;"a\nb";2\n', delimiter=b";")) == 1
    assert len(ends(b'1;"a\nb";2\n', delimiter=b",")) == 2
    assert len(ends('1§"a\nb"§2\n'.encode(), delimiter="§".encode())) == 1


def test_json_lines_know_no_quotes() -> None:
    assert len(ends(b'"a\nb"\n', delimiter=None)) == 2
