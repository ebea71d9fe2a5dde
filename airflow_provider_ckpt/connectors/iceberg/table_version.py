"""Read an Iceberg table at one version, and commit the next one: a commit is tried once, and always makes a snapshot.

A catalog accepts a commit if the table's newest snapshot is still the one on which the commit was prepared, even if
other things, such as properties, have changed in the table. So every commit of this sink, including the fence's,
creates a snapshot (an empty one if there are no rows), and the catalog then refuses every commit that was prepared
before. After such a refusal, the library's own commit would load the newest table and retry by itself (property
``commit.retry.num-retries``), and so bypass a new fence. It is therefore not used. The library's clean-up is not used
either: it takes a conflict as proof that nothing was committed, although the response to a successful commit may have
been lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.iceberg.catalog import library_errors
from airflow_provider_ckpt.connectors.iceberg.column_types import (
    add_new_columns,
    change_columns,
    changes_for,
    refuse_misfit,
    with_new_columns,
)
from airflow_provider_ckpt.connectors.iceberg.data_file import data_file
from airflow_provider_ckpt.connectors.iceberg.layout import IcebergLayout
from airflow_provider_ckpt.connectors.iceberg.table import TableAddress, live_files
from airflow_provider_ckpt.connectors.two_phase.alterable_version import AlterableVersion
from airflow_provider_ckpt.connectors.two_phase.replaceable_version import ReplaceableVersion
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.next_schema_version import TargetStep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_NEVER_MERGED = "false"


class IcebergVersion(ReplaceableVersion, AlterableVersion):
    """An Iceberg table at one version, and commits of the next version.

    See :class:`ReplaceableVersion` and :class:`AlterableVersion`.

    :param address: the table in its catalog
    :param table: the table at this version; it is not refreshed
    :param schema: columns of the rows to be added; the commit adds those that the table lacks, if the pipeline allows
        it
    """

    layout: IcebergLayout

    def __init__(self, address: TableAddress, table: Table, schema: pa.Schema | Schema | None = None) -> None:
        super().__init__(address.layout(table))
        self.table = table
        self.schema = with_new_columns(table, schema, adds_columns=address.adds_columns)
        self._address = address
        self._rows = schema

    @property
    def head(self) -> int | None:
        """Number of the newest receipt node, stored in a property of the table; None if there is none."""
        head = self.table.properties.get(self.layout.head_property)
        return int(head) if head is not None else None

    @property
    def epoch(self) -> int:
        """Epoch of the fence, stored in a property of the table; 0 if there is none."""
        return int(self.table.properties.get(self.layout.epoch_property, 0))

    @property
    def target(self) -> str:
        """Identity of the table: its UUID, which changes if the table is dropped and created again."""
        return str(self.table.metadata.table_uuid)

    @property
    def number(self) -> int:
        """Number of this version: the sequence number of its newest snapshot, or 0 if there is none."""
        snapshot = self.table.current_snapshot()
        return (snapshot.sequence_number or 0) if snapshot is not None else 0

    @property
    def next_number(self) -> int:
        """Sequence number that the next commit gets; 0 in a table of format version 1, which has none."""
        return self.table.metadata.next_sequence_number()

    def restored_version(self, since: int) -> int | None:
        """Return the number of the version that a rollback brought back; see :meth:`TableVersion.restored_version`.

        Expiry removes the oldest ancestors of a snapshot, and some programs then treat the oldest remaining one as the
        first of all. So if all remaining ancestors are newer than ``since``, a rollback cannot be detected.

        :param since: number of the newest version that the pipeline knows; only a rollback to an older version is
            reported; 0 if the pipeline knows no version, so that no rollback is reported
        :return: None if there was no such rollback; 0 if the table has no snapshot any more
        """
        if not since:
            return None
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self.table.snapshots()}
        ancestor = self.table.current_snapshot()
        if ancestor is None:
            return 0
        while ancestor is not None and (ancestor.sequence_number or 0) > since:
            ancestor = snapshots.get(ancestor.parent_snapshot_id or -1)
        number = (ancestor.sequence_number or 0) if ancestor is not None else since
        return number if number < since else None

    def refuse_misfit(self, staged: StagedBatch) -> None:
        """Raise an error if a staged batch does not fit this table's columns and partitioning.

        :param staged: the batch
        :raises ConfigError: if the columns do not fit the table
        :raises SinkError: if the table was altered after the batch was staged, but rows staged again would fit
        """
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.schema import Schema

        if staged.name is None or staged.schema is None:
            return
        schema = Schema.model_validate_json(staged.schema)
        specs = {file["spec"] for file in staged.files}
        if schema.as_struct() == self.schema.as_struct() and specs == {self.table.spec().spec_id}:
            return
        refuse_misfit(
            self._address.name,
            self.schema,
            schema_to_pyarrow(schema),
            adds_columns=self._address.adds_columns,
            follows_schema=self._address.follows_schema,
        )
        raise SinkError(
            f"the Iceberg table {self._address.name} was altered after rows were staged for it; nothing was committed.",
            recoverable=True,
            is_outage=True,
            hint="The batch is sent again.",
        )

    def commit(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit staged batches with epoch and head as a new snapshot, or nothing; see :meth:`TableVersion.commit`.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored in the snapshot's summary
        :return: False if another writer committed first, or may have
        """
        return self._commit_batches(added, epoch, head, note, removed=None)

    def replace(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit a snapshot that has only the files of the staged batches; see :meth:`ReplaceableVersion.replace`.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored in the snapshot's summary
        :return: False if another writer committed first, or may have
        """
        return self._commit_batches(added, epoch, head, note, removed=self._files())

    def needed_changes(self, steps: Sequence[TargetStep]) -> Sequence[TargetStep]:
        """Return the changes of columns that this table still needs; see :meth:`AlterableVersion.needed_changes`.

        :param steps: the changes of the target that a schema version requires
        :raises ConfigError: if the table cannot make a change without loss
        """
        return changes_for(self.table, steps, self.layout.pipeline)

    def change_columns(self, changes: Sequence[TargetStep], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit changes of the columns with epoch and head, and an empty snapshot.

        The catalog also refuses the commit if another writer has changed the columns since this version; see
        :meth:`AlterableVersion.change_columns`.

        :param changes: the changes, as :meth:`needed_changes` returned them
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored in the snapshot's summary
        :return: False if another writer committed first, or may have
        """
        properties = {self.layout.epoch_property: str(epoch), self.layout.head_property: str(head)}
        return self._commit(properties, [], note, changes=changes)

    def row_count(self) -> int:
        """Return the number of rows in this version: the sum of the counts that its manifests record for each file.

        :raises SinkError: if rows of a file are marked as deleted, or the manifests cannot be read
        """
        return sum(file.record_count for file in self._files())

    def commit_fence(self, epoch: int, head: int | None = None) -> bool:
        """Commit the epoch of the fence with an empty snapshot.

        :param epoch: the new epoch
        :param head: number of a receipt node that starts a new chain, if the old chain is unreadable; else None
        :return: False if another writer committed first, or may have
        :raises CkptError: if the commit failed for another reason
        """
        note = {"pipeline": self.layout.pipeline, "fence": epoch}
        properties = {self.layout.epoch_property: str(epoch)}
        if head is not None:
            properties[self.layout.head_property] = str(head)
        return self._commit(properties, [], note)

    def _files(self) -> list[DataFile]:
        """Return the data files of this version.

        :raises SinkError: if rows of a file are marked as deleted
        """
        try:
            return live_files(self.table)
        except library_errors() as error:
            operation = f"read the manifests of the Iceberg table {self._address.name}"
            raise self._address.error(error, operation) from None  # the cause may contain a secret

    def _commit_batches(
        self,
        added: Sequence[StagedBatch],
        epoch: int,
        head: int,
        note: Mapping[str, Any],
        *,
        removed: Sequence[DataFile] | None,
    ) -> bool:
        properties = {self.layout.epoch_property: str(epoch), self.layout.head_property: str(head)}
        short = {**note, "batches": len(added)}  # a snapshot's summary stays in the table's metadata until it expires
        return self._commit(properties, [file for staged in added for file in staged.files], short, removed)

    def _commit(
        self,
        properties: dict[str, str],
        files: Sequence[Mapping[str, Any]],
        note: Mapping[str, Any],
        removed: Sequence[DataFile] | None = None,
        changes: Sequence[TargetStep] = (),
    ) -> bool:
        """Commit a new snapshot together with table properties.

        :param properties: table properties to set
        :param files: staged files to add
        :param note: information for users, stored in the snapshot's summary
        :param removed: files of this version to remove; None for a snapshot that only adds files
        :param changes: changes of the columns
        :return: False if another writer committed first, or may have
        :raises CkptError: if the commit failed for another reason
        """
        from pyiceberg.table.update import AssertTableUUID

        name = self._address.name
        try:
            transaction = self.table.transaction()
            add_new_columns(transaction, self.table.schema(), self._rows, adds_columns=self._address.adds_columns)
            change_columns(transaction, changes)
            transaction.set_properties(properties)
            update_snapshot = transaction.update_snapshot(snapshot_properties={"ckpt": json.dumps(note)})
            merged = self.table.properties.get("commit.manifest-merge.enabled") != _NEVER_MERGED
            producer = (
                update_snapshot.overwrite()
                if removed is not None
                else update_snapshot.merge_append()
                if merged
                else update_snapshot.fast_append()
            )
            with producer:
                for old in removed or ():
                    producer.delete_data_file(old)
                for file in files:
                    producer.append_data_file(data_file(file, self.table.spec(), self.schema))
            requirements = (*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))
            self.table._do_commit(transaction._updates, requirements)
        except library_errors() as error:
            if not self._address.has_changed(self.table):
                raise self._address.error(
                    error, f"commit to the Iceberg table {name}"
                ) from None  # the cause may contain a secret
            return False
        return True
