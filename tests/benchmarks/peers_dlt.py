"""Execute one load by dlt, in a separate process and environment that has dlt and not this package.

``python peers_dlt.py tables NAME...`` copies the new rows of tables, by their column ``id``, and ``python peers_dlt.py
lines`` all records of JSON lines. Source, target, state and names are in environment variables (``peers_tools.py``).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import dlt  # type: ignore[import-not-found,unused-ignore]


def _tables(names: list[str]) -> None:
    # dlt calls itself once for each table without new rows.
    sys.setrecursionlimit(sys.getrecursionlimit() + 10 * len(names))
    from dlt.sources.sql_database import sql_database  # type: ignore[import-not-found,unused-ignore]

    schema = os.environ.get("SOURCE_SCHEMA")
    source = sql_database(os.environ["SOURCE"], schema=schema, table_names=names, backend="pyarrow", chunk_size=100_000)
    for name in names:
        # Ids are unique, so rows at the boundary need not be compared.
        source.resources[name].apply_hints(incremental=dlt.sources.incremental("id", range_start="open"))
    _pipeline(dlt.destinations.postgres(os.environ["TARGET"])).run(
        source, write_disposition="append", loader_file_format="csv"
    )


def _lines() -> None:
    from dlt.sources.filesystem import filesystem, read_jsonl  # type: ignore[import-not-found,unused-ignore]

    source = filesystem(bucket_url=os.environ["SOURCE"], file_glob="*.jsonl") | read_jsonl()
    _pipeline(dlt.destinations.filesystem(os.environ["TARGET"])).run(
        source.with_name("lines"), write_disposition="append", loader_file_format="parquet"
    )


def _pipeline(destination: Any) -> Any:
    return dlt.pipeline(
        "peers", destination=destination, dataset_name=os.environ["DATASET"], pipelines_dir=os.environ["STATE"]
    )


if __name__ == "__main__":
    if sys.argv[1] == "tables":
        _tables(sys.argv[2:])
    else:
        _lines()
