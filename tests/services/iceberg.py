"""Iceberg catalog for a test, in an SQLite file or a database, with its warehouse in a directory; and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from airflow_provider_ckpt.connectors.connection import Connection


@dataclass(frozen=True)
class IcebergService:
    """A catalog and its warehouse.

    :param folder: holds both, unless ``dsn`` names a database for the catalog
    """

    folder: Path
    dsn: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The catalog's properties, as a connection's extra holds them."""
        uri = self.dsn or f"sqlite:///{self.folder}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder}/warehouse"}

    @property
    def connection(self) -> Connection:
        """The catalog as a pipeline is told of it."""
        return Connection("lake", "generic", extra=self.properties)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """The catalog, as any user of the library opens it."""
        uri = self.properties["uri"].replace("postgresql://", "postgresql+psycopg2://")
        with closing(load_catalog("default", **{**self.properties, "uri": uri})) as catalog:
            yield catalog

    def table(self, name: str) -> Table | None:
        """A table as it is now."""
        with self.catalog() as catalog:
            try:
                return catalog.load_table(name)
            except NoSuchTableError:
                return None

    def files(self, name: str) -> list[Path]:
        """The data files that are part of a table."""
        table = self.table(name)
        tasks = table.scan().plan_files() if table is not None else []
        return [Path(task.file.file_path.removeprefix("file://")) for task in tasks]

    def rows(self, name: str) -> pa.Table:
        """All rows of a table, read file by file in the calling thread."""
        parts = [ParquetFile(path).read(use_threads=False) for path in self.files(name)]
        return pa.concat_tables(parts) if parts else pa.table({})
