"""Write the rows of a batch as a new Parquet file, in a directory or an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_ckpt.connectors.storage.location import Location


def write_parquet(path: Location, rows: pa.Table, **options: Any) -> tuple[pq.FileMetaData, int]:
    """Write rows durably to a new Parquet file, and return its footer and its size in bytes.

    The footer is read back from the file. If the library returned it instead, an error during writing would be replaced
    by an error about the footer.

    :param path: the new file
    :param rows: the rows
    :param options: further options of the library's ``write_table``
    :raises IoError: if the file system or object store fails
    """
    import pyarrow.parquet as pq

    with path.create() as file:
        pq.write_table(rows, file, compression="zstd", store_schema=False, **options)
        size = file.tell()
        footer = pq.read_metadata(file)
    return footer, size
