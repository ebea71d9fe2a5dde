"""Define the interface to a version of a table that a commit can replace by a version with entirely different rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch
from airflow_provider_ckpt.connectors.two_phase.version import TableVersion


class ReplaceableVersion(TableVersion):
    """A version of a table with methods that count its rows and commit a next version with entirely different rows."""

    @abstractmethod
    def row_count(self) -> int:
        """Return the exact number of rows in this version: from the table's statistics, or by reading the files.

        :raises SinkError: if the rows cannot be counted
        """

    @abstractmethod
    def replace(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit a version that has only the files of the staged batches; see :meth:`TableVersion.commit`.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored as metadata of the commit
        :return: False if another writer committed first, or may have
        :raises CkptError: if the commit failed for another reason
        """
