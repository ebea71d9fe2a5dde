"""What is missing now, then everything new: a reader of one pipeline that neither misses an event nor sees one twice.

Every command of a pipeline holds its lease row locked from before it writes its events until it has committed. So ids,
though given before the commit, grow in the order of commits within a pipeline, and the newest id that a snapshot shows
says exactly what the snapshot holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.recovery import Missing
from airflow_provider_ckpt.ledger.queries import status

_AT_ONCE = 1000


class Subscription:
    """Wave's ``subscribe`` on one pipeline's audit trail.

    Planned and receipted ranges are told by the details of ``planned``, ``settled`` and their like.

    :param missing: what was unaccounted for when the subscription began; nothing where it goes on from an event
    :param after: the newest event that was seen; give it to :meth:`Ledger.subscribe` to go on later
    """

    def __init__(
        self,
        reading: Callable[[], AbstractContextManager[Connection]],
        pipeline: str,
        missing: Sequence[Missing],
        after: int,
    ) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self.missing = tuple(missing)
        self.after = after

    def poll(self, limit: int = _AT_ONCE) -> list[dict[str, Any]]:
        """The events that are new since the last call, oldest first, JSON-ready.

        :param limit: how many at most; the others come at the next call
        :raises LedgerStateError: if some of them were collected in the meantime
        """
        with self._reading() as connection:
            found = status.events_after(connection, self._pipeline, self.after, limit)
        if found:
            self.after = found[-1]["id"]
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All that is new, until nothing more is."""
        while found := self.poll():
            yield from found
