"""Change the columns of a table to those of a new schema version, in one commit with the version's receipt.

Like a commit of rows, the commit stores the epoch and the head of the receipt chain, whose newest node contains the
receipt of the schema version. Each try opens the newest version of the table, looks there for the receipt and the
epoch, computes the changes that this version of the table lacks, and commits the version right after it. If another
writer changes the table in between, the next try computes the changes again.

While there is no table, there are no columns to change: the first rows determine them. The receipt is then stored as a
file.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import escape
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.alterable_version import AlterableVersion
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import refuse_loss
from airflow_provider_ckpt.core.errors import FencedError, SinkError
from airflow_provider_ckpt.core.next_schema_version import TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion


class ChangesColumns(ABC):
    """Methods of :class:`~.sink_protocol.SinkWithSchemaChanges` for a two-phase sink; the subclass opens the table."""

    _pipeline: Pipeline
    _context: SinkContext

    @abstractmethod
    def _version(self) -> AlterableVersion | None:
        """Return the newest version of the table; None if there is no table."""

    def schema_versions(self) -> Sequence[SchemaVersion]:
        """Return the schema versions that have a receipt; see :meth:`SinkWithSchemaChanges.schema_versions`."""
        version = self._version()
        return [] if version is None else _receipted(version)

    def apply_schema_version(self, epoch: int, version: SchemaVersion, steps: Sequence[TargetStep]) -> None:
        """Change the table's columns in one commit with the receipt of a schema version.

        See :meth:`SinkWithSchemaChanges.apply_schema_version`.

        :param epoch: epoch of the run
        :param version: the schema version
        :param steps: the changes of the table
        :raises FencedError: if the fence is at a newer epoch
        :raises SinkError: if the table is gone, or this or a newer version of the source partition has a receipt
        """
        retries = CommitRetries(self._pipeline, self._pipeline.sink.place)
        tried = False
        while True:
            table = self._table_to_change()
            receipts = ReceiptChain(table.layout)
            refuse_loss(table, receipts)
            known = [found for found in _receipted(table) if found.partition == version.partition]
            if tried and version.to_json() in [found.to_json() for found in known]:
                return
            if any(found.number >= version.number for found in known):
                raise _receipt_exists(version, table)
            table.refuse_unless_current(epoch)
            if table.target is None:
                self._store_before_table(table, epoch, version)
                return
            changes = table.needed_changes(steps)
            retries.refuse_if_over()
            head = receipts.append(table.head, [], version=table.next_number, schema=version)
            tried = True
            note = {"pipeline": self._context.pipeline, "epoch": epoch, "schema_version": version.number}
            retries.count_try(succeeded=table.change_columns(changes, epoch, head, note))

    def _table_to_change(self) -> AlterableVersion:
        version = self._version()
        if version is None:
            raise SinkError(
                f"there is no table {self._pipeline.sink.place} any more, so its columns were not changed.",
                pipeline=self._context.pipeline,
                hint="Restore the table, or run again: the next run names the commands to choose from.",
            )
        return version

    def _store_before_table(self, table: AlterableVersion, epoch: int, version: SchemaVersion) -> None:
        """Store the receipt of a schema version durably as a file, since there is no table yet.

        :param table: state of the missing table
        :param epoch: epoch of the run
        :param version: the schema version
        :raises FencedError: if the fence was raised to a newer epoch meanwhile; the file is removed then
        :raises IoError: if the version has a receipt already, or the file system or object store fails
        """
        path = table.layout.schema_versions / f"{version.number}-{escape(version.partition)}.json"
        if _read(path) is None:
            path.remove()
        path.write(json.dumps(version.to_json()).encode(), exclusive=True)
        try:
            self._table_to_change().refuse_unless_current(epoch)
        except FencedError:
            path.remove()
            raise


def _receipted(version: AlterableVersion) -> list[SchemaVersion]:
    """Return the schema versions that have a receipt, in the chain or in files from before the table was created.

    :param version: the newest version of the table
    """
    found = ReceiptChain(version.layout).schema_versions(version.head)
    keys = {(schema.partition, schema.number) for schema in found}
    directory = version.layout.schema_versions
    earlier = [_read(directory / name) for name in directory.names() if name[:1].isdecimal()]
    return [
        *found,
        *(schema for schema in earlier if schema is not None and (schema.partition, schema.number) not in keys),
    ]


def _read(path: Location) -> SchemaVersion | None:
    """Return the schema version in a file; None if there is no such file, or a crash has cut its writing short.

    :param path: the file
    """
    try:
        return SchemaVersion.from_json(json.loads(path.read() or b""))
    except (ValueError, KeyError, TypeError):
        return None


def _receipt_exists(version: SchemaVersion, table: AlterableVersion) -> SinkError:
    return SinkError(
        f"schema version {version.number} has a receipt at the table {table.layout.table} already.",
        pipeline=table.layout.pipeline,
        recoverable=True,
        hint="Run again: the run reads the versions that the sink has first.",
    )
