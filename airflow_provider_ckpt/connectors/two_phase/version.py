"""Define the interfaces to a table of a two-phase sink: open the table, inspect one version, commit the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from airflow_provider_ckpt.connectors import refuse_fenced_run
from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch


class TableVersion(ABC):
    """One version of a table, as it was opened; in some formats, also the state of a table that does not exist yet.

    :param layout: paths of the pipeline's files at the table
    """

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout

    @property
    @abstractmethod
    def head(self) -> int | None:
        """Number of the pipeline's newest receipt node, as stored in this version; None if there is none."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Epoch of the fence as of this version: the highest to which a run has raised it; 0 if it was never raised."""

    @property
    @abstractmethod
    def target(self) -> str | None:
        """The table's own id, which changes if the table is recreated; None if there is no table."""

    @property
    @abstractmethod
    def number(self) -> int:
        """Number of this version; 0 if the table has no version yet."""

    @property
    @abstractmethod
    def next_number(self) -> int:
        """Number of the version that the next commit creates."""

    @abstractmethod
    def restored_version(self, since: int) -> int | None:
        """Return the version number before ``since`` to which a restore or rollback set the table back; else None.

        Changes by other writers (deletes, rewrites, additions) build on the older versions and are not reported.

        :param since: number of a version; only a restore to a version before it is reported; 0 if none is known
        """

    @abstractmethod
    def refuse_misfit(self, staged: StagedBatch) -> None:
        """Raise an error if the columns of a staged batch do not fit this table.

        :param staged: the batch
        :raises ConfigError: naming the columns
        """

    @abstractmethod
    def commit(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Commit staged batches, the epoch and the head together as the next version of the table, or nothing.

        The caller opens the newest version afterwards, whose receipts show whether the commit took effect. Staged files
        are not removed, even if the commit fails.

        :param added: staged batches
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: information for users, stored as metadata of the commit
        :return: False if another writer committed first, or may have
        :raises CkptError: if the commit failed for another reason
        """

    def publish(self, committed: Sequence[CommittedReceipt]) -> None:  # noqa: B027  # tables need nothing more
        """Make the rows of committed batches visible to readers; do nothing if the commit itself has made them visible.

        :param committed: receipts of the batches
        """

    def refuse_if_fenced(self, epoch: int) -> None:
        """Raise an error if the table's fence is at a newer epoch than the run.

        :param epoch: epoch of the run
        :raises FencedError: naming both epochs
        """
        refuse_fenced_run.refuse_if_fenced(self.epoch, epoch, f"the table {self.layout.table}", self.layout.pipeline)

    def refuse_unless_current(self, epoch: int) -> None:
        """Raise an error unless the table's fence is at the run's epoch.

        :param epoch: epoch of the run
        :raises FencedError: if the fence is at a newer epoch
        :raises SinkError: if the fence was never raised, or was removed with the table
        """
        refuse_fenced_run.refuse_unless_current(
            self.epoch, epoch, f"the table {self.layout.table}", self.layout.pipeline
        )


class TableOpener(Protocol):
    """Opener of the newest version of the table to which a wave is committed; it opens the table anew for each try."""

    @property
    def target(self) -> str:
        """Description of the table for messages, such as ``the Iceberg table db.t``."""

    def open(self, schema: str | None) -> TableVersion:
        """Return the table as it is now, after creating it or adding columns if that takes a separate commit.

        :param schema: columns of the staged rows, as the writer encoded them; None if no batch has any
        """

    def close(self) -> None:
        """Close the connections to the table's catalog."""
