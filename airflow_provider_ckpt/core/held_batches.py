"""Hold a batch until a user decides about it, and release it (semantics, section 1).

A held batch is not sent, and continues to block the checkpoint of its partition.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_ckpt.core.attempts import AttemptingPartition
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, PlannedTicket


class HoldingPartition(AttemptingPartition):
    """A partition whose batches can be held and released."""

    def hold(self, ticket: PlannedTicket | InFlightTicket, *, reason: str) -> tuple[HeldTicket, list[Event]]:
        """Hold a batch until a user releases or skips it; it continues to block the checkpoint.

        An open attempt is closed but not undone: if its receipt arrives later, the receipt still resolves the batch.

        :param ticket: the batch, planned or in flight
        :param reason: the reason, stored in the event
        :return: the ticket that is needed to release the batch, and the events for the audit log
        :raises LedgerStateError: if the batch is no longer in the state that the ticket names
        """
        batch = self._batch_of_ticket(ticket)
        self.batches[batch.key.seq] = replace(batch, state=BatchState.HELD, epoch=None, not_before=None)
        return HeldTicket(batch.key), [self._event("held", batch.key.seq, reason=reason)]

    def release(self, ticket: HeldTicket) -> tuple[PlannedTicket, list[Event]]:
        """Plan a held batch again; its counts of failures and rounds are reset, so that it gets all attempts again.

        :param ticket: the held batch
        :return: the ticket that is needed to begin or skip the batch, and the events for the audit log
        :raises LedgerStateError: if the batch is not held any more
        """
        batch = self._expect(ticket.key.seq, BatchState.HELD)
        self.batches[batch.key.seq] = replace(
            batch, state=BatchState.PLANNED, failures=0, round=1, deaths=0, alone=False, not_before=None
        )
        return PlannedTicket(batch.key), [self._event("released", batch.key.seq)]
