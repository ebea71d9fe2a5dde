"""Read the state of a Delta table at one version, or before its creation, and commit the table's next version.

A commit stores the fence's epoch and the head of the receipts, together with rows or with changed columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.delta import restore_check
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import changes_for, decode_schema, field_of_type, misfits
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.two_phase.alterable_version import AlterableVersion
from airflow_provider_ckpt.connectors.two_phase.column_types import misfit_error
from airflow_provider_ckpt.connectors.two_phase.replaceable_version import ReplaceableVersion
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field


class DeltaVersion(ReplaceableVersion, AlterableVersion):
    """State of a Delta table at one version, or before its creation, with methods that commit the next version.

    See :class:`ReplaceableVersion` and :class:`AlterableVersion`.

    :param layout: paths of the pipeline's files at the table, and application ids of its ``txn`` actions
    :param table: the table at this version, or None while there is no table
    :param rows_may_lack: whether rows may lack nullable columns of the table
    """

    layout: DeltaLayout

    def __init__(self, layout: DeltaLayout, table: DeltaTable | None, *, rows_may_lack: bool = False) -> None:
        super().__init__(layout)
        self.table = table
        self._rows_may_lack = rows_may_lack

    @cached_property
    def head(self) -> int | None:
        """Number of the newest receipt node, stored in a ``txn`` action of the table; None if there is none.

        Unlike other entries of the log, such an action is kept when the log is cleaned up.
        """
        return self._stored_number(self.layout.receipts_app)

    @cached_property
    def committed_epoch(self) -> int:
        """Epoch that the newest commit of a run stored in the table's log; 0 if there is none.

        A newer fence may have been raised since by a file, see :attr:`epoch`.
        """
        return self._stored_number(self.layout.epoch_app) or 0

    @cached_property
    def epoch(self) -> int:
        """Epoch of the fence, the highest in the table's log and among the fence files' names; 0 if there is none.

        A fence file is named by its epoch.

        The fence files are read when the property is first used, hence after the table was opened; ``fence.py``
        explains why this order matters.
        """
        fenced = (int(name) for name in self.layout.fences.names() if name.isdecimal())
        return max(self.committed_epoch, max(fenced, default=0))

    @property
    def target(self) -> str | None:
        """Id of the table, from its metadata; None if there is no table."""
        return str(self.table.metadata().id) if self.table is not None else None

    @property
    def number(self) -> int:
        """Number of this version of the table; 0 if there is no table."""
        return self.table.version() if self.table is not None else 0

    @property
    def next_number(self) -> int:
        """Number of the version after this one, the only version that a commit can create."""
        return self.number + 1

    def restored_version(self, since: int) -> int | None:
        """Return the number of the version that a RESTORE brought back; see :meth:`TableVersion.restored_version`.

        A restore whose log entry was cleaned up is not detected. A missing table counts as set back to version 0.

        :param since: number of a version; only a restore to a version before it is reported; 0 if none is known
        :return: None if there was no such restore
        """
        if self.table is None:
            return 0 if since else None
        return restore_check.restored_version(self.table, self.layout.table, since)

    def refuse_misfit(self, staged: StagedBatch) -> None:
        """Raise an error if a staged batch's columns do not fit this table; see :meth:`TableVersion.refuse_misfit`.

        Other writers may have changed the table since the run's check. Plain files that are added to a table that got
        partitions or constraints meanwhile would lose the partition columns' values, or violate the constraints.

        :param staged: the batch
        :raises ConfigError: naming the columns, or the features that this sink does not support
        """
        if staged.name is None or staged.schema is None or self.table is None:
            return
        delta_table.refuse_unsupported(self.table, self.layout.table)
        problems = misfits(self.table, decode_schema(staged.schema), may_lack=self._rows_may_lack)
        if problems:
            raise misfit_error(f"the Delta table {self.layout.table}", problems)

    def lacks(self, schema: str) -> list[Field]:
        """Return those columns of rows that the table lacks, if the rows' other columns fit the table.

        The list is empty if there is no table, or if one of the other columns does not fit, for example because of its
        type; :meth:`refuse_misfit` raises the error for that.

        :param schema: columns of the rows, as :func:`encode_schema` returns them
        """
        from deltalake import Schema

        gets = decode_schema(schema)
        if self.table is None or misfits(self.table, gets, may_lack=True, may_add=True):
            return []
        known = {field.name for field in self.table.schema().fields}
        return [field for field in Schema.from_arrow(gets).fields if field.name not in known]

    def commit(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit staged batches, epoch and head as the next version, or nothing; see :meth:`TableVersion.commit`.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored as metadata of the commit
        :return: False if another writer committed first, or may have
        :raises SinkError: if there is no table any more, or the commit failed for another reason
        """
        return self._commit(added, epoch, head, note, replacing=False)

    def replace(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit a version that has only the files of the staged batches; see :meth:`ReplaceableVersion.replace`.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored as metadata of the commit
        :return: False if another writer committed first, or may have
        :raises SinkError: if there is no table any more, or the commit failed for another reason
        """
        return self._commit(added, epoch, head, note, replacing=True)

    def needed_changes(self, steps: Sequence[TargetStep]) -> Sequence[TargetStep]:
        """Return the changes of columns that this table still needs; see :meth:`AlterableVersion.needed_changes`.

        :param steps: the changes of the target that a schema version requires
        :raises ConfigError: if the table cannot make a change without loss
        """
        if self.table is None:
            return []
        return changes_for(self.table, f"the Delta table {self.layout.table}", steps, self.layout.pipeline)

    def change_columns(self, changes: Sequence[TargetStep], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit changes of the columns with epoch and head; see :meth:`AlterableVersion.change_columns`.

        The library drops one constraint NOT NULL in each commit. So if a column is to lose it and there are further
        changes, only this one is committed, without the head, and the caller tries again with the rest.

        :param changes: the changes, as :meth:`needed_changes` returned them
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored as metadata of the commit
        :return: False if another writer committed first, or may have, or if some of the changes are still to be
            committed
        """
        if self.table is None or not changes:
            return self.commit([], epoch, head, note)
        path, described = self.layout.table, {"ckpt": dict(note)}
        transactions = {self.layout.epoch_app: epoch}
        last = {**transactions, self.layout.receipts_app: head}
        required = [change.name for change in changes if change.kind is StepKind.ALLOW_NULL]
        if required and len(changes) > 1:
            delta_table.allow_null(self.table, path, required[0], transactions, described)
            return False
        if required:
            return delta_table.allow_null(self.table, path, required[0], last, described)
        added = [field_of_type(change.name, change.type) for change in changes]
        return delta_table.add_columns(self.table, path, added, last, described)

    def row_count(self) -> int:
        """Return the number of rows in this version, from the log's statistics, else from a file's footer.

        :raises SinkError: if a file without statistics is missing
        """
        return delta_table.counted_rows(self.table, self.layout.table) if self.table is not None else 0

    def _stored_number(self, application: str) -> int | None:
        """Return the number that the newest ``txn`` action of an application has stored in the log; None without one.

        :param application: id of the application
        """
        return None if self.table is None else self.table.transaction_version(application)

    def _commit(
        self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any], *, replacing: bool
    ) -> bool:
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        if self.table is None:
            raise SinkError(
                f"there is no Delta table at {self.layout.table} any more, so nothing was committed.",
                hint="Restore the table, or run again: the next run names the commands to choose from.",
            )
        actions = [
            AddAction(file["path"], file["size"], {}, file["modified"], True, file["stats"])
            for staged in added
            for file in staged.files
        ]
        transactions = {self.layout.epoch_app: epoch, self.layout.receipts_app: head}
        try:
            delta_table.commit(
                self.table, self.layout.table, actions, transactions, {"ckpt": dict(note)}, replacing=replacing
            )
        except (DeltaError, OSError) as error:
            if not delta_table.has_newer_version(self.table, self.layout.table):
                operation = f"commit to the Delta table {self.layout.table}"
                raise delta_table.delta_error(error, operation) from error
            return False
        return True
