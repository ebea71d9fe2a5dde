"""Read and replace the state of a files sink in an object store; of two commits on one state, only one succeeds.

The state is one object, the *head object*, with the fence's epoch and the number of the newest receipt node. The store
replaces it only if it still has the content that was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.publication import publish
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.restored_target import accepted_version
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch
from airflow_provider_ckpt.connectors.two_phase.version import TableVersion
from airflow_provider_ckpt.core.errors import SinkError

_FORMAT = 1


class ObjectFilesVersion(TableVersion):
    """State of a files sink in an object store, as the head object had it when it was read; see :class:`TableVersion`.

    :param layout: keys of the pipeline's objects
    :raises SinkError: if the head object is damaged
    """

    layout: ObjectLayout

    def __init__(self, layout: ObjectLayout) -> None:
        super().__init__(layout)
        found = layout.head.read_version()
        content = None if found is None else found[0]
        self._known = None if found is None else found[1]
        try:
            document = {} if content is None else json.loads(content)
            self._epoch, self._number = int(document.get("epoch", 0)), int(document.get("number", 0))
            self._head = None if document.get("head") is None else int(document["head"])
        except (ValueError, TypeError, AttributeError) as error:
            raise SinkError(
                f"the object {layout.head} with the fence and the newest receipts is damaged.",
                pipeline=layout.pipeline,
                is_outage=True,
                hint="Restore an older version of the object, or remove it and run again: the run then says which "
                "receipts are missing.",
            ) from error

    @property
    def head(self) -> int | None:
        """Number of the newest receipt node; None if there is none."""
        return self._head

    @property
    def epoch(self) -> int:
        """Epoch of the fence: the highest epoch to which a run has raised it; 0 if it was never raised."""
        return self._epoch

    @property
    def target(self) -> str | None:
        """Id of the target, which the first fence stores below the prefix; None if none was ever raised there."""
        found = self.layout.identity.read()
        return None if found is None else found.decode("utf-8", "replace").strip()

    @property
    def number(self) -> int:
        """Number of this state: how many times the head object has been replaced."""
        return self._number

    @property
    def next_number(self) -> int:
        """Number of the state that the next commit creates."""
        return self._number + 1

    def restored_version(self, since: int) -> None:  # see set_back
        """Return None: in this sink, :attr:`set_back` reports that an older state was restored.

        :param since: number of an older state
        """

    @property
    def set_back(self) -> str | None:
        """Evidence that the head object was set back, as by a backup, for an error message; None if it was not.

        The head object was set back if its count of replacements is lower than the count in the pipeline's object
        ``accepted``.
        """
        accepted = accepted_version(self)
        if self._number >= accepted:
            return None
        return (
            f"the object {self.layout.head} with fence and receipts was set back: it was replaced {self._number} times "
            f"by what it says itself, and {accepted} times by what the last run left"
        )

    def refuse_misfit(self, staged: StagedBatch) -> None:
        """Accept every staged batch, as files may have different columns; see :meth:`TableVersion.refuse_misfit`."""

    def commit(self, added: Sequence[StagedBatch], epoch: int, head: int, note: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Make a receipt node the head; return False if another writer replaced the head object first.

        See :meth:`TableVersion.commit`.

        :param added: not used; the receipts name the staged objects
        :param epoch: epoch of the run
        :param head: number of the new receipt node
        :param note: not used
        """
        return self.replace(epoch, head)

    def replace(self, epoch: int, head: int | None) -> bool:
        """Replace the head object and return True, or return False if it no longer has the content that was read.

        :param epoch: epoch of the run
        :param head: number of the newest receipt node after this; None if there is none
        """
        document = {
            "format": _FORMAT,
            "epoch": epoch,
            "head": head,
            "number": self.next_number,
        }
        return self.layout.head.swap(json.dumps(document).encode(), self._known)

    def publish(self, committed: Sequence[CommittedReceipt]) -> None:
        """Copy the staged objects of committed batches to their final names; see :meth:`TableVersion.publish`."""
        publish(self.layout, committed)
