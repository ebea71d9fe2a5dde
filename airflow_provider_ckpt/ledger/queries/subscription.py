"""Read everything that is missing now and then every new event of a pipeline, without missing or repeating one.

Every command of a pipeline holds the lease row locked from before it writes its events until it has committed. Event
ids, though assigned before the commit, therefore grow in the order of commits within a pipeline, and the newest id in a
snapshot tells exactly what the snapshot contains.
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
    """Reader of one pipeline's audit log (Wave's ``subscribe``).

    The details of events such as ``planned`` and ``settled`` list planned and receipted ranges.

    :param reading: opens a snapshot
    :param pipeline: name of the pipeline
    :param missing: what was unaccounted for when the subscription began; empty if it continues from an event
    :param after: newest event that was read; give it to :meth:`Ledger.subscribe` to continue later
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

        :param limit: maximum number of events; the next call returns the others
        :raises LedgerStateError: if some of them were garbage-collected meanwhile
        """
        with self._reading() as connection:
            found = status.events_after(connection, self._pipeline, self.after, limit)
        if found:
            self.after = found[-1]["id"]
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield new events until there are no more."""
        while found := self.poll():
            yield from found
