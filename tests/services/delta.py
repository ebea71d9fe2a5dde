"""Read a Delta table's rows in a test: file by file, in the calling thread.

The package's own scan uses threads that can outlive the interpreter and abort it at exit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile


def read_delta(path: Path | str, columns: Sequence[str] | None = None, version: int | None = None) -> pa.Table:
    """All rows of the table.

    :param columns: only these, all by default
    :param version: of the table, the newest by default
    """
    table = DeltaTable(path, version)
    schema = pa.schema(table.schema().to_arrow())
    wanted = list(columns) if columns else schema.names
    names = pa.table(table.get_add_actions())["path"].to_pylist()
    parts = [ParquetFile(Path(path) / name).read(wanted, use_threads=False) for name in names]
    return pa.concat_tables(parts) if parts else schema.empty_table().select(wanted)
