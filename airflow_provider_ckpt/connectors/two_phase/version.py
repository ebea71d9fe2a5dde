"""A table at one version: what a two-phase sink asks of it, and how it commits as the very next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.connectors.two_phase.layout import Layout
from airflow_provider_ckpt.connectors.two_phase.staging import Staged
from airflow_provider_ckpt.core.errors import FencedError, SinkError


class TableVersion(ABC):
    """A table as it was when it was opened; of a format that has one, also a table that does not exist yet.

    :param layout: where the pipeline's files are
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @property
    @abstractmethod
    def head(self) -> int | None:
        """The number of the newest receipt node, None if there is none."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The highest epoch fenced so far, 0 if none."""

    @property
    @abstractmethod
    def target(self) -> str | None:
        """The table's own id, which one that is made anew does not have; None if there is no table."""

    @property
    @abstractmethod
    def current(self) -> int:
        """The number of this version; 0 before the first."""

    @property
    @abstractmethod
    def following(self) -> int:
        """The number of the version that the next commit makes."""

    @abstractmethod
    def went_back_to(self, since: int) -> int | None:
        """The older version whose content the table has again; None if it still has the content of ``since``.

        What others delete, rewrite or add leaves the content of older versions behind, and is no way back.

        :param since: the number of an older version, 0 for none
        """

    @abstractmethod
    def refuse_misfit(self, staged: Staged) -> None:
        """Fail if what was staged cannot be part of this table.

        :raises ConfigError: naming the columns
        """

    @abstractmethod
    def commit(self, added: Sequence[Staged], epoch: int, head: int, note: Mapping[str, Any]) -> bool:
        """Make what was staged part of the table, with the epoch and the head, as its very next version or not at all.

        Whether it worked, a fresh look says. No file is removed here.

        :param note: for people
        :returns: False when another writer was faster, or may have been
        :raises CkptError: if nobody was faster, and it did not work
        """

    def refuse_if_fenced(self, epoch: int) -> None:
        """Fail if a newer epoch holds the fence.

        :raises FencedError: naming both
        """
        newest = self.epoch
        if newest > epoch:
            raise FencedError(
                f"epoch {epoch} is fenced at {self.layout.table}: epoch {newest} has taken over.",
                pipeline=self.layout.pipeline,
            )

    def refuse_unless_current(self, epoch: int) -> None:
        """Fail unless the fence stands at the writer's epoch.

        :raises FencedError: if a newer epoch holds it
        :raises SinkError: if it was never raised, or went with the table
        """
        self.refuse_if_fenced(epoch)
        newest = self.epoch
        if newest < epoch:
            raise SinkError(
                f"the sink's fence stands at {newest or 'no epoch'}, not at this writer's epoch {epoch}.",
                pipeline=self.layout.pipeline,
                hint="The fence is raised before anything is sent; start a new run.",
            )
