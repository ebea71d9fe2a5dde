"""Define the interface to a version of a table whose columns a commit can change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.connectors.two_phase.version import TableVersion
from airflow_provider_ckpt.core.next_schema_version import TargetStep


class AlterableVersion(TableVersion):
    """A version of a table with methods that commit a next version with changed columns."""

    @abstractmethod
    def needed_changes(self, steps: Sequence[TargetStep]) -> Sequence[TargetStep]:
        """Return the changes that this table still needs; see :func:`.column_changes.needed_changes`.

        :param steps: the changes of the target that a schema version requires
        :raises ConfigError: if the table cannot make a change without loss
        """

    @abstractmethod
    def change_columns(self, changes: Sequence[TargetStep], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit changes of the columns, the epoch and the head together as the next version of the table, or nothing.

        The caller opens the newest version afterwards, whose receipts show whether the commit took effect.

        :param changes: the changes, as :meth:`needed_changes` returned them
        :param epoch: epoch of the run
        :param head: number of the new receipt node, which has the receipt of the schema version
        :param note: information for users, stored as metadata of the commit
        :return: False if the caller has to open the newest version and try again: another writer committed first, or
            may have, or only a part of the changes was committed
        :raises CkptError: if the commit failed for another reason
        """
