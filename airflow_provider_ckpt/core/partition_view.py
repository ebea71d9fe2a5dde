"""Read-only view of one partition: its checkpoint, the batches beyond it, and properties derived from them.

The view checks the state of a batch and returns the ticket that a transition needs; see ``tickets.py``. Planned batches
that were not sent yet are part of the state and block the checkpoint. The names ``committed``, ``in_flight`` and
``pending_acks`` come from FastForward, the state machine for checkpoints that is the model for this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_ckpt.core.batch import BLOCKING, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.checkpoint import cancellation_watermark
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range, subtract
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, PlannedTicket


class PartitionView:
    """One partition in one generation: its checkpoint, and the batches that the checkpoint has not passed.

    The list ``passed`` collects the resolved batches over which the checkpoint moves; the ledger merges their receipts.

    :param partition: the partition's id
    :param generation: the number of the generation; every rewind or refresh begins one with a higher number
    :param base: the generation's first position
    :param committed: the checkpoint, the next position to read after a restart; None for ``base``
    :param next_seq: the seq of the next planned batch
    :param planned_end: the end of everything planned so far, where new batches start; None for ``committed``
    :param limit: the end of a side partition; None for a source partition, which grows
    :param phase: the pipeline's phase
    :param batches: the batches that are not below ``committed``
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
    def blocking(self) -> dict[int, Batch]:
        """Unresolved batches, which the checkpoint may not pass, by seq."""
        return {seq: b for seq, b in self.batches.items() if b.state in BLOCKING}

    @property
    def cancellation_watermark(self) -> int | None:
        """The seq of the first cancelled batch, which the checkpoint may not pass; None if there is none.

        A cancelled batch that was started again or resolved does not count.
        """
        return cancellation_watermark(self.batches)

    def gaps(self) -> list[Range]:
        """Return the ranges between the checkpoint and the end of the plan that no batch covers, to be planned again.

        Such a range remains if a receipt imported from the sink supersedes a batch and covers only a part of its range.
        """
        if self.planned_end <= self.committed:
            return []
        covered = [b.range for b in self.batches.values() if b.state is not BatchState.SUPERSEDED]
        return subtract(Range(self.committed, self.planned_end), covered)

    def unplanned(self) -> list[Range]:
        """Return the ranges of known extent that no batch covers yet: the gaps, and the rest of a side partition.

        A source partition has no fixed end, so that only its gaps are returned.
        """
        rest = [Range(self.planned_end, self.limit)] if self.limit is not None and self.planned_end < self.limit else []
        return [*self.gaps(), *rest]

    def planned_ticket(self, seq: int) -> PlannedTicket:
        """Return the ticket that is needed to begin, hold or skip a batch, after checking that the batch is planned.

        :raises LedgerStateError: if the batch is unknown or in another state
        """
        return PlannedTicket(self._expect(seq, BatchState.PLANNED).key)

    def in_flight_ticket(self, seq: int) -> InFlightTicket:
        """Return the ticket that is needed to end a batch's open attempt, after checking that the batch is in flight.

        :raises LedgerStateError: if the batch is unknown or in another state
        """
        batch = self._expect(seq, BatchState.IN_FLIGHT)
        assert batch.epoch is not None
        return InFlightTicket(batch.key, batch.attempts, batch.epoch)

    def held_ticket(self, seq: int) -> HeldTicket:
        """Return the ticket that is needed to release a batch, after checking that the batch is held.

        :raises LedgerStateError: if the batch is unknown or in another state
        """
        return HeldTicket(self._expect(seq, BatchState.HELD).key)

    # Helpers of the transitions in partition.py

    def _batch_of_ticket(self, ticket: PlannedTicket | InFlightTicket) -> Batch:
        if isinstance(ticket, InFlightTicket):
            return self._open_batch(ticket)
        return self._expect(ticket.key.seq, BatchState.PLANNED)

    def _open_batch(self, ticket: InFlightTicket) -> Batch:
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
