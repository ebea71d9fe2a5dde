"""Subscribe to a pipeline: read the ranges that are missing now, and then every new event, each exactly once.

Every command of a pipeline holds the lease row locked from before it writes its events until it has committed. Although
event ids are assigned before the commit, they therefore grow in the order of commits within a pipeline, and the newest
id in a snapshot shows exactly which events the snapshot contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.recovery import MissingRange
from airflow_provider_ckpt.ledger.queries import status

_PAGE_SIZE = 1000


class Subscription:
    """Reader of the missing ranges and of the new events in one pipeline's audit log.

    The details of events such as ``planned`` and ``settled`` list the ranges that were planned or got a receipt.

    :param reading: function that opens a snapshot of the ledger
    :param pipeline: name of the pipeline
    :param missing: ranges with records that had never been read when the subscription began: ranges without a receipt,
        and those with late rows; empty if it continues after an event
    :param after: id of the newest event that was read; pass it to :meth:`Ledger.subscribe` to continue later
    """

    def __init__(
        self,
        reading: Callable[[], AbstractContextManager[Connection]],
        pipeline: str,
        missing: Sequence[MissingRange],
        after: int,
    ) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self.missing = tuple(missing)
        self.after = after

    def poll(self, limit: int = _PAGE_SIZE) -> list[dict[str, Any]]:
        """Return the events since the last call, in order, JSON-ready.

        :param limit: maximum number of events; further events are returned by the next call
        :raises LedgerStateError: if events since the last call were garbage-collected
        """
        with self._reading() as connection:
            found = status.events_after(connection, self._pipeline, self.after, limit)
        if found:
            self.after = found[-1]["id"]
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield new events until there are none left; iterate again later to read on."""
        while found := self.poll():
            yield from found
