"""Find, create, open and inspect an Iceberg table in its catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.catalog import CatalogAddress, library_errors
from airflow_provider_ckpt.connectors.iceberg.layout import IcebergLayout
from airflow_provider_ckpt.connectors.iceberg.storage import to_location
from airflow_provider_ckpt.connectors.refuse_fenced_run import wrong_epoch_error
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SinkError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_NEW_TABLE = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of a new table; with them, many small commits leave few manifests and metadata files."""

_NEWEST_FORMAT = 2
_NO_ROWS = "0"


class TableAddress:
    """Address of a pipeline's table: its catalog (``sink.connection``), opened on first use, and name (``sink.table``).

    :param pipeline: the pipeline
    :param connection: the Airflow connection of the catalog
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if there is no connection, or the connection names no catalog
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        if connection is None:
            raise ConfigError("an iceberg sink needs sink.connection.", pipeline=pipeline.name)
        self.name = pipeline.sink.place
        self.connection = connection.id
        self.adds_columns = pipeline.sink.adds_columns
        self.follows_schema = pipeline.schema_ is not None
        self.context = context
        self._address = CatalogAddress.of(connection)
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The Iceberg library's object for the catalog, opened on first use.

        :raises SinkError: if the catalog cannot be reached
        :raises ConfigError: if the catalog's properties are not valid
        """
        if self._catalog is None:
            self._catalog = self._address.open()
        return self._catalog

    def load(self) -> Table | None:
        """Return the newest version of the table, loaded from the catalog; None if there is no table.

        :raises SinkError: if the catalog fails
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            return None
        except library_errors() as error:
            raise self.error(error, f"open the Iceberg table {self.name}") from None  # the cause may contain a secret

    def load_fenced(self) -> Table:
        """Return the newest version of the table, loaded from the catalog; it must exist, since the fence creates it.

        :raises SinkError: if the catalog fails, or there is no table, and so no fence
        """
        table = self.load()
        if table is None:
            location = f"the Iceberg table {self.name}, which does not exist,"
            raise wrong_epoch_error(0, self.context.epoch, location, self.context.pipeline)
        return table

    def create(self) -> Table:
        """Create the table without columns unless it exists, and return it; the first wave adds the columns.

        This way, the fence can be committed before the columns of the rows are known.

        :raises SinkError: if the catalog fails
        :raises ConfigError: if the table is removed as soon as it is created
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
            raise self.error(error, f"create the Iceberg table {self.name}") from None  # the cause may contain a secret
        table = self.load()
        if table is None:
            raise ConfigError(
                f"the Iceberg table {self.name} was removed as soon as it was created; nothing was sent.",
                hint="Find out what removes it, then run again.",
            )
        return table

    def has_changed(self, table: Table) -> bool:
        """Return whether the table in the catalog has changed since it was loaded, or is gone.

        :param table: the table as it was loaded
        """
        fresh = self.load()
        return fresh is None or fresh.metadata_location != table.metadata_location

    def layout(self, table: Table) -> IcebergLayout:
        """Return the names of the pipeline's table properties, and the paths of its files in the table's directory.

        :param table: the table
        :raises ConfigError: if the table is in a store that is not supported
        """
        root = to_location(table.location(), self.name, table.io.properties)
        return IcebergLayout(root, self.context.ledger, self.context.pipeline)

    def error(self, error: Exception, operation: str) -> CkptError:
        """Convert an error of the Iceberg library to one of this package, without secrets in its message.

        :param error: the library's error
        :param operation: description of the failed operation, as in ``open the Iceberg table db.t``
        :return: the error, which the caller raises
        """
        return self._address.error(error, operation)

    def close(self) -> None:
        """Close the connections to the catalog."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def refuse_unsupported(table: Table) -> None:
    """Raise an error for a table that cannot be written by adding plain files, such as one of a newer format version.

    :param table: the table
    :raises ConfigError: naming the unsupported features
    """
    from pyiceberg.transforms import UnknownTransform

    reasons = []
    if table.metadata.format_version > _NEWEST_FORMAT:
        reasons.append(f"its format version is {table.metadata.format_version}, above {_NEWEST_FORMAT}")
    columns = {field.field_id for field in table.schema().fields}
    for field in table.spec().fields:
        if field.source_id not in columns:
            reasons.append(f"it is partitioned by {field.name}, which is not derived from a top-level column")
        elif isinstance(field.transform, UnknownTransform):
            reasons.append(f"it is partitioned by {field.name} with the unknown transform {field.transform}")
    if reasons:
        raise ConfigError(
            f"the iceberg sink cannot write to {'.'.join(table.name())}: {'; '.join(reasons)}.",
            hint="Write to a table without these features, and derive this one from it.",
        )


def data_files(table: Table, directory: Location) -> Iterator[tuple[Location, int | None]]:
    """Yield each file of the table's newest snapshot, manifests included, with its recorded size in bytes.

    The size of the manifest list is None, since it is not recorded. The files of a missing manifest are unknown and
    left out.

    :param table: the table
    :param directory: the table's directory, for paths that are relative to it
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    listed = directory.resolve(snapshot.manifest_list)
    yield listed, None
    if listed.size() is None:
        return
    for manifest in snapshot.manifests(table.io):
        path = directory.resolve(manifest.manifest_path)
        yield path, manifest.manifest_length
        if path.size() is None:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            yield directory.resolve(entry.data_file.file_path), entry.data_file.file_size_in_bytes


def live_files(table: Table) -> list[DataFile]:
    """Return the data files of the newest snapshot.

    :param table: the table
    :raises SinkError: if rows of a file are marked as deleted, so that the table has fewer rows than its files
    """
    from pyiceberg.manifest import DataFileContent

    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    files = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    if any(file.content != DataFileContent.DATA for file in files):
        raise SinkError(
            f"the Iceberg table {'.'.join(table.name())} marks rows of its files as deleted, so they cannot be counted "
            "and replaced.",
            hint="Rewrite its files without delete files: CALL system.rewrite_data_files with delete-file-threshold 1, "
            "then rewrite_position_delete_files.",
        )
    return files


def row_count(table: Table) -> int | None:
    """Return the table's number of rows, from the summary of its newest snapshot; 0 if there is no snapshot.

    :param table: the table
    :return: None if the summary has no total, or rows are marked as deleted
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    summary = snapshot.summary
    if summary is None or any(
        summary.get(f"total-{kind}-deletes", _NO_ROWS) != _NO_ROWS for kind in ("position", "equality")
    ):
        return None
    total = summary.get("total-records")
    return int(total) if total is not None else None
