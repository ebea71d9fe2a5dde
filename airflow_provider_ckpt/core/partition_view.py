"""What is known of one source partition: the batches beyond its checkpoint, and what follows from them.

The fields carry FastForward's names where it has them: ``committed``, ``in_flight``, ``pending_acks``. What FastForward
does not see, work that is planned and not yet sent, is here too and blocks (KurrentDB's lesson).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, Batch, BatchKey, BatchState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range, subtract
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, Phase, PlannedTicket


class Spans:
    """Finds which of many batches that do not overlap each other a range touches.

    :param batches: unresolved ones, say
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = sorted(batches, key=lambda batch: batch.range)
        self._starts = [batch.range.start for batch in self._batches]

    def overlapping(self, span: Range) -> Iterator[int]:
        """The seqs of the batches that share a position with a range, the last first."""
        for at in range(bisect_left(self._starts, span.end) - 1, -1, -1):
            batch = self._batches[at]
            if batch.range.end <= span.start:
                return
            yield batch.key.seq


class PartitionView:
    """The batches of one source partition in one generation that are not yet below the checkpoint.

    :param partition: the partition's id
    :param generation: grows with every rewind
    :param base: the generation's first position
    :param committed: the next position to read after a restart; ``base`` at first
    :param next_seq: the seq that the next planned batch gets
    :param planned_end: the end of what was ever planned; new plans start here
    :param limit: the end of a side partition, which re-reads a stretch; None where the source grows
    :param batches: those not yet below ``committed``

    ``passed`` collects the resolved batches that the checkpoint has moved over; the ledger merges their receipts.
    """

    def __init__(
        self,
        partition: str,
        *,
        generation: int = 1,
        base: int = 0,
        committed: int | None = None,
        next_seq: int = 0,
        planned_end: int | None = None,
        limit: int | None = None,
        phase: Phase = Phase.RUNNING,
        batches: Iterable[Batch] = (),
    ) -> None:
        self.id = partition
        self.generation = generation
        self.base = base
        self.committed = base if committed is None else committed
        self.next_seq = next_seq
        self.planned_end = self.committed if planned_end is None else planned_end
        self.limit = limit
        self.phase = phase
        self.batches: dict[int, Batch] = {batch.key.seq: batch for batch in batches}
        self.passed: list[Batch] = []

    @property
    def in_flight(self) -> dict[int, Batch]:
        """Batches with an open attempt, by seq."""
        return {seq: b for seq, b in self.batches.items() if b.state is BatchState.IN_FLIGHT}

    @property
    def pending_acks(self) -> dict[int, Batch]:
        """Batches that are resolved and wait for an earlier one, by seq."""
        return {seq: b for seq, b in self.batches.items() if b.state in RESOLVED}

    @property
    def blocking(self) -> dict[int, Batch]:
        """Batches that the checkpoint may not pass, by seq."""
        return {seq: b for seq, b in self.batches.items() if b.state in BLOCKING}

    @property
    def cancellation_watermark(self) -> int | None:
        """The earliest cancelled seq that is neither begun again nor resolved; derived, so it outlives restarts."""
        return min((seq for seq, b in self.batches.items() if b.cancelled), default=None)

    def gaps(self) -> list[Range]:
        """What lies between the checkpoint and ``planned_end`` and belongs to no batch: left by an imported receipt."""
        if self.planned_end <= self.committed:
            return []
        live = [b.range for b in self.batches.values() if b.state is not BatchState.SUPERSEDED]
        return subtract(Range(self.committed, self.planned_end), live)

    def unplanned(self) -> list[Range]:
        """What a side partition is still to plan: gaps, and what lies from ``planned_end`` to its end."""
        rest = [Range(self.planned_end, self.limit)] if self.limit is not None and self.planned_end < self.limit else []
        return [*self.gaps(), *rest]

    def planned(self, seq: int) -> PlannedTicket:
        """The ticket of a planned batch.

        :raises LedgerStateError: if it is in another state
        """
        return PlannedTicket(self._expect(seq, BatchState.PLANNED).key)

    def sending(self, seq: int) -> InFlightTicket:
        """The ticket of a batch in flight.

        :raises LedgerStateError: if it is in another state
        """
        batch = self._expect(seq, BatchState.IN_FLIGHT)
        assert batch.epoch is not None
        return InFlightTicket(batch.key, batch.attempts, batch.epoch)

    def held(self, seq: int) -> HeldTicket:
        """The ticket of a held batch.

        :raises LedgerStateError: if it is in another state
        """
        return HeldTicket(self._expect(seq, BatchState.HELD).key)

    # For transitions

    def _ticketed(self, ticket: PlannedTicket | InFlightTicket) -> Batch:
        if isinstance(ticket, InFlightTicket):
            return self._open(ticket)
        return self._expect(ticket.key.seq, BatchState.PLANNED)

    def _open(self, ticket: InFlightTicket) -> Batch:
        batch = self._expect(ticket.key.seq, BatchState.IN_FLIGHT)
        if (batch.attempts, batch.epoch) != (ticket.attempt, ticket.epoch):
            raise LedgerStateError(
                f"attempt {ticket.attempt} of epoch {ticket.epoch} is not the open one", batch=self._name(batch.key.seq)
            )
        return batch

    def _expect(self, seq: int, state: BatchState) -> Batch:
        batch = self.batches.get(seq)
        if batch is None:
            raise LedgerStateError("it was never planned, or is below the checkpoint", batch=self._name(seq))
        if batch.state is not state:
            raise LedgerStateError(f"it is {batch.state.value}, not {state.value}", batch=self._name(seq))
        return batch

    def _event(self, kind: str, seq: int | None, **detail: Any) -> Event:
        return Event(kind, self.id, self.generation, seq, detail)

    def _name(self, seq: int) -> str:
        return str(BatchKey(self.generation, self.id, seq))
