"""CSV in the files source: newlines in quotes, header lines, and header lines that do not match."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.files.csv_header import column_names
from airflow_provider_ckpt.core.errors import SourceError
from tests.integration.connectors.files.files_support import Ledger, pipeline

DATA = b'id,name\r\n1,"two\r\nlines"\r\n2,"say ""hi"""\r\n\r\n3,last'
RECORDS = [b'1,"two\r\nlines"', b'2,"say ""hi"""', b"", b"3,last"]


@pytest.mark.parametrize(("number", "sizes"), [(None, [4]), (1, [1, 1, 1, 1]), (3, [3, 1])])
def test_a_newline_inside_quotes_ends_no_record(tmp_path: Path, number: int | None, sizes: list[int]) -> None:
    (tmp_path / "a.csv").write_bytes(DATA)
    ledger = Ledger(pipeline(tmp_path, decode="csv"))

    plan = ledger.plan(number)

    assert [batch.records for batch in plan.batches] == sizes
    assert ledger.planned[0].start == 0
    assert ledger.end == len(DATA)
    assert ledger.values() == RECORDS


def test_without_a_header_the_first_line_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,a\n2,b\n")
    ledger = Ledger(pipeline(tmp_path, decode="csv", header=False))

    ledger.plan(1)

    assert ledger.values() == [b"1,a", b"2,b"]


def test_a_file_of_a_header_alone_is_a_batch_without_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,name\n")
    ledger = Ledger(pipeline(tmp_path, decode="csv"))

    plan = ledger.plan()

    assert [batch.records for batch in plan.batches] == [0]
    assert ledger.values() == []


def test_a_header_with_a_mark_and_other_letter_case_fits(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfID,"Name"\n1,a\n')
    ledger = Ledger(pipeline(tmp_path, decode="csv"))

    ledger.plan()

    assert ledger.values() == [b"1,a"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"name,id", "names the columns of transform.schema in another order"),
        (b"id,secret,extra", "has 3 fields, but transform.schema declares 2 columns"),
        (b"id,secret", "has another name in field 2 than name, which transform.schema declares there"),
        (b"secret,a", "set source.header: false"),
        (b"id,name\r1,secret\r", r"a\.csv: its first line is not a CSV record\."),
        (b"secret" * 10_000, "has 1 field, but"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_before_anything_is_planned(
    tmp_path: Path, header: bytes, message: str
) -> None:
    (tmp_path / "a.csv").write_bytes(header + b"\n1,a\n")

    with pytest.raises(SourceError, match=message) as caught:
        Ledger(pipeline(tmp_path, decode="csv")).plan()
    assert "secret" not in str(caught.value)  # where there is no header, the first line is data


def test_big_csv_files_are_cut_only_where_records_end(tmp_path: Path) -> None:
    count = 200_000
    rows = b"".join(b'%d,"%s\n%s"\n' % (n, b"x" * 40, b"y" * 40) for n in range(count))
    (tmp_path / "a.csv").write_bytes(b"id,name\n" + rows)
    ledger = Ledger(pipeline(tmp_path, decode="csv"))

    plan = ledger.plan()

    assert len(plan.batches) == 2
    assert sum(batch.records or 0 for batch in plan.batches) == count
    values = ledger.values()
    assert len(values) == count
    assert values[0].startswith(b'0,"')
    assert values[-1].endswith(b'yyy"')


def test_column_names_come_from_any_spark_ddl() -> None:
    schema = "id BIGINT NOT NULL, `a ``b``, c` decimal(10, 2), s: struct<x: int, y: string> COMMENT 'p, q', last date"

    assert column_names(schema) == ["id", "a `b`, c", "s", "last"]
