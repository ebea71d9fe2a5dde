"""Name the delta sink's fence files, and the application ids under which a Delta table's log stores epoch and head.

The epoch is that of the fence, and the head is the number of the newest receipt node.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ckpt.connectors.storage.filesystem import BOOKKEEPING_DIRECTORY, escape, unescape
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout


@dataclass(frozen=True, slots=True)
class DeltaLayout(TableLayout):
    """Paths and application ids of one pipeline and ledger at one Delta table.

    An application id is the key of a ``txn`` action in Delta's log; the action's ``version`` is a number stored under
    the id. The parameters are those of :class:`TableLayout`.
    """

    @property
    def epoch_app(self) -> str:
        """Application id of the ``txn`` action that stores the epoch of the fence; every commit sets it."""
        return f"{self.ledger}:{self.pipeline}"

    @property
    def receipts_app(self) -> str:
        """Application id of the ``txn`` action that stores the number of the newest receipt node, the chain's head."""
        return f"{self.ledger}:{self.pipeline}:receipts"

    @property
    def fences(self) -> Location:
        """Directory of empty files, each named by an epoch to which the fence was raised, such as ``12``.

        The fence is at the highest of these epochs and the epoch in the table's log; so there is a fence even while
        there is no table.
        """
        return self.pipeline_directory / "fence"

    def ledgers(self) -> frozenset[str]:
        """Return the ids of all ledgers that ever raised this pipeline's fence at the table."""
        own = self.table / BOOKKEEPING_DIRECTORY
        ledgers = [name for name in own.names() if any((own / name / escape(self.pipeline)).names())]
        return frozenset(unescape(name) for name in ledgers)
