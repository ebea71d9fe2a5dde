"""Find, create and open an Iceberg table in its catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.fencing import wrong_epoch_error
from airflow_provider_ckpt.connectors.iceberg.catalog import CatalogAddress, library_errors
from airflow_provider_ckpt.connectors.iceberg.layout import IcebergLayout
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import CkptError, ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_NEW_TABLE = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of a new table: many small commits leave few manifests and metadata files."""


class TableAddress:
    """Address of a pipeline's table: its catalog (``sink.connection``), opened on first use, and ``sink.table``.

    :param pipeline: the pipeline
    :param connection: the catalog
    :param context: ledger, pipeline and epoch
    :raises ConfigError: if there is no connection, or it names no catalog
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        if connection is None:
            raise ConfigError("an iceberg sink needs sink.connection.", pipeline=pipeline.name)
        self.name = pipeline.sink.table or ""
        self.connection = connection.id
        self.grows = pipeline.sink.grows
        self.context = context
        self._address = CatalogAddress.of(connection)
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog, opened on first use.

        :raises SinkError: if it cannot be reached
        """
        if self._catalog is None:
            self._catalog = self._address.open()
        return self._catalog

    def load(self) -> Table | None:
        """Return the table as it is now, or None if there is none.

        :raises SinkError: if the catalog fails
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            return None
        except library_errors() as error:
            raise self.error(error, f"open the Iceberg table {self.name}") from None  # the cause may show a secret

    def load_fenced(self) -> Table:
        """Return the table as it is now; it exists since the fence was raised.

        :raises SinkError: if there is none, and so no fence
        """
        table = self.load()
        if table is None:
            place = f"the Iceberg table {self.name}, which does not exist,"
            raise wrong_epoch_error(0, self.context.epoch, place, self.context.pipeline)
        return table

    def create(self) -> Table:
        """Create the table without columns unless it exists; the first wave adds the columns.

        So a fence can be committed before the columns of the rows are known.
        """
        from pyiceberg.exceptions import NoSuchNamespaceError
        from pyiceberg.schema import Schema

        try:
            try:
                self.catalog.create_table(self.name, Schema(), properties=_NEW_TABLE)
            except NoSuchNamespaceError:
                self.catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
                self.catalog.create_table(self.name, Schema(), properties=_NEW_TABLE)
        except library_errors() as error:
            if (table := self.load()) is not None:
                return table  # another process created it
            raise self.error(error, f"create the Iceberg table {self.name}") from None  # the cause may show a secret
        table = self.load()
        if table is None:
            raise ConfigError(f"the Iceberg table {self.name} was removed as soon as it was created.")
        return table

    def moved(self, table: Table) -> bool:
        """Return whether the table has changed since it was opened, or is gone."""
        fresh = self.load()
        return fresh is None or fresh.metadata_location != table.metadata_location

    def layout(self, table: Table) -> IcebergLayout:
        """Return the paths of the pipeline's files.

        :raises ConfigError: if the table is not on a local file system
        """
        return IcebergLayout(to_local_path(table.location(), self.name), self.context.ledger, self.context.pipeline)

    def error(self, error: Exception, doing: str) -> CkptError:
        """Convert an error of the catalog."""
        return self._address.error(error, doing)

    def close(self) -> None:
        """Close the catalog's connections."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def to_local_path(location: str, name: str) -> Path:
    """Convert a location to a local path.

    :param location: path or URL
    :param name: object at that location, for the message
    :raises ConfigError: if it is not local
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, path = PyArrowFileIO.parse_location(location)
    if scheme != "file":
        raise ConfigError(
            f"{name} is at {location}; {scheme}:// locations are not supported, only local paths and file:// URLs.",
            hint="Use a warehouse that every lane can reach as a directory, such as a shared mount.",
        )
    return Path(path)
