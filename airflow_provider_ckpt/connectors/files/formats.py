"""Write and count rows in the formats of the files sink: JSON lines, CSV with a header line, or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from airflow_provider_ckpt.connectors import float_texts
from airflow_provider_ckpt.connectors.extreme_times import is_out_of_range, to_iso
from airflow_provider_ckpt.connectors.json_encoding import encode_rows
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_ROWS = 20_000
_NOT_IN_CSV = ("array<", "map<", "struct<", "binary", "variant")
_NOT_IN_PARQUET = ("interval", "variant")


def refuse_types(columns: Sequence[tuple[str, str]], form: str) -> None:
    """Raise an error if a format cannot store some of the columns.

    :param columns: name and Spark SQL type of each column
    :param form: ``jsonl``, ``csv`` or ``parquet``
    :raises ConfigError: naming the unsuitable columns
    """
    refused = {"csv": _NOT_IN_CSV, "parquet": _NOT_IN_PARQUET}.get(form, ())
    found = [f"{name} is {kind}" for name, kind in columns if kind.startswith(tuple(refused))]
    if found:
        raise ConfigError(
            f"a {form} file cannot hold these columns: {'; '.join(found)}.",
            hint="Cast them in transform.select, for example by to_json, base64 or to string.",
        )


def write_rows(rows: pa.Table, form: str, file: IO[bytes]) -> None:
    """Write rows to an open file in one of the formats.

    :param rows: the rows
    :param form: ``jsonl``, ``csv`` or ``parquet``
    :param file: the open file
    :raises OSError: if the file system fails
    :raises ConfigError: if the format cannot store a column
    """
    import pyarrow as pa

    try:
        {"jsonl": _write_json_lines, "csv": _write_csv, "parquet": _write_parquet}[form](rows, file)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ConfigError(
            f"rows cannot be written as {form}: {str(error).splitlines()[0]}", hint="Cast them in transform.select."
        ) from error


def count_rows(file: IO[bytes], form: str) -> int:
    """Return the number of rows in a file that :func:`write_rows` wrote.

    :param file: the open file
    :param form: ``jsonl``, ``csv`` or ``parquet``
    :raises OSError: if the file system fails
    """
    if form == "parquet":
        from pyarrow.parquet import read_metadata

        return int(read_metadata(file).num_rows)
    data = file.read()
    outside_quotes = [data] if form == "jsonl" else data.split(b'"')[::2]
    return sum(part.count(b"\n") for part in outside_quotes) - (form == "csv")


def _write_json_lines(rows: pa.Table, file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in rows.to_batches(max_chunksize=_MAX_ROWS):
        table = pa.Table.from_batches([batch])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        lines = pc.binary_join_element_wise(encode_rows(columns, table.num_rows), pa.scalar(""), pa.scalar("\n"))
        file.write(memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()])


def _write_csv(rows: pa.Table, file: IO[bytes]) -> None:
    """Write rows as CSV: texts in quotes, an empty text as ``""``, null as an empty field.

    A timestamp has a space between date and time.
    """
    import pyarrow as pa
    from pyarrow import csv

    csv.write_csv(pa.table([_readable_column(column) for column in rows.columns], rows.column_names), file)


def _readable_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column unchanged, or as text if Arrow would write some values in a form that CSV readers reject.

    Such values are numbers that are not finite, and dates and timestamps outside of the years that Arrow can format.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return column if float_texts.has_only_finite(column) else float_texts.to_texts(column)
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        array = column.combine_chunks()
        return to_iso(array, " ") if pc.any(is_out_of_range(array)).as_py() else column
    return column


def _write_parquet(rows: pa.Table, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, file, compression="zstd", store_schema=False, write_page_checksum=True)
