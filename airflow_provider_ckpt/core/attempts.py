"""Begin the attempts of batches, and end those that got no receipt (semantics, section 1).

No attempt begins before the batch's ``not_before``. With at-most-once delivery, beginning an attempt resolves the batch
as ``sent``, so that it is never sent again. An attempt that was abandoned, fenced, cancelled or never executed, or that
failed in an outage, does not count against ``max_attempts``.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from airflow_provider_ckpt.core.acknowledgements import AcknowledgingPartition
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import ErrorInfo, LedgerStateError
from airflow_provider_ckpt.core.tickets import Event, InFlightTicket, PlannedTicket


class AttemptingPartition(AcknowledgingPartition):
    """A partition that begins attempts of its batches and ends those without a receipt.

    Its methods take a ticket: a value that names the batch and proves that its state was checked (see
    :mod:`~airflow_provider_ckpt.core.tickets`). The methods return the ticket of the batch's next state, and the events
    for the audit log.
    """

    def begin(
        self,
        ticket: PlannedTicket,
        *,
        epoch: int,
        now: datetime,
        at_most_once: bool = False,
        advance: bool = True,
    ) -> tuple[InFlightTicket, list[Event]]:
        """Begin the next attempt of a planned batch, which then is in flight, or ``sent`` with at-most-once delivery.

        If the batch was cancelled before, it no longer sets the cancellation watermark, so the checkpoint may move.

        :param ticket: the planned batch, as :meth:`planned_ticket` returns it
        :param epoch: the lease's epoch
        :param now: the current time, UTC, which is compared with the batch's ``not_before``
        :param at_most_once: whether the batch is resolved as ``sent`` at once, without a receipt
        :param advance: whether to move the checkpoint; False if the caller calls :meth:`advance` after several changes
        :return: the ticket that names the open attempt and is needed to end it, and the events for the audit log
        :raises LedgerStateError: while draining or stopped, before ``not_before``, or if the batch is not planned
        """
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        if not self.phase.accepts_work:
            raise LedgerStateError(f"nothing is started while {self.phase.value}", batch=self._name(batch.key.seq))
        if batch.not_before is not None and now < batch.not_before:
            raise LedgerStateError(
                f"not to be started before {batch.not_before.isoformat()}", batch=self._name(batch.key.seq)
            )
        state = BatchState.SENT if at_most_once else BatchState.IN_FLIGHT
        self.batches[batch.key.seq] = replace(
            batch, state=state, attempts=batch.attempts + 1, epoch=epoch, not_before=None, cancelled=False
        )
        events = [self._event("begun", batch.key.seq, attempt=batch.attempts + 1, epoch=epoch, state=state.value)]
        if advance and (at_most_once or batch.cancelled):
            events += self.advance()
        return InFlightTicket(batch.key, batch.attempts + 1, epoch), events

    def fail(
        self,
        ticket: InFlightTicket,
        error: ErrorInfo,
        *,
        not_before: datetime | None,
        next_round: bool = False,
        counts: bool = True,
    ) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that failed, and plan the batch again, because it is unknown whether the sink received it.

        :param ticket: the open attempt, as :meth:`begin` returned it
        :param error: the error that the lane reported
        :param not_before: earliest start of the next attempt, UTC; None if it may start at once
        :param next_round: whether this round's attempts are used up, so that the next attempt is in the next round
        :param counts: whether the failure counts against ``max_attempts``; False for a failure that ends the run, such
            as an outage of the whole source or sink
        :return: the ticket that is needed to begin the batch again, and the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        batch = self._open_batch(ticket)
        self.batches[batch.key.seq] = replace(
            batch,
            state=BatchState.PLANNED,
            epoch=None,
            error=error,
            not_before=not_before,
            failures=0 if next_round else batch.failures + counts,
            finished=batch.finished + counts,
            round=batch.round + next_round,
        )
        event = self._event("failed", batch.key.seq, error=error.to_json(), next_round=next_round)
        return PlannedTicket(batch.key), [event]

    def not_attempted(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that its lane never executed, and plan the batch again.

        The attempt does not count against ``max_attempts``.

        :param ticket: the open attempt, as :meth:`begin` returned it
        :return: the ticket that is needed to begin the batch again, and the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        return self._return_to_planned(ticket, "not_attempted")

    def abandon(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a crash or a forced stop interrupted, and plan the batch again.

        The attempt does not count against ``max_attempts``.

        :param ticket: the open attempt, as :meth:`begin` returned it
        :return: the ticket that is needed to begin the batch again, and the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        return self._return_to_planned(ticket, "abandoned")

    def fence(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a run of an older epoch left open, and plan the batch again.

        The caller has fenced the sink, so that this attempt can no longer commit. It does not count against
        ``max_attempts``.

        :param ticket: the open attempt, as :meth:`in_flight_ticket` returns it
        :return: the ticket that is needed to begin the batch again, and the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        return self._return_to_planned(ticket, "fenced")

    def cancel(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a user cancelled, and plan the batch again.

        Until the batch is started again or resolved, the checkpoint does not pass its start, even if later batches are
        resolved.

        :param ticket: the open attempt, as :meth:`begin` returned it
        :return: the ticket that is needed to begin the batch again, and the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        planned, events = self._return_to_planned(ticket, "cancelled")
        self.batches[planned.key.seq] = replace(self.batches[planned.key.seq], cancelled=True)
        return planned, events

    def _return_to_planned(self, ticket: InFlightTicket, kind: str) -> tuple[PlannedTicket, list[Event]]:
        batch = self._open_batch(ticket)
        self.batches[batch.key.seq] = replace(batch, state=BatchState.PLANNED, epoch=None)
        return PlannedTicket(batch.key), [self._event(kind, batch.key.seq, attempt=ticket.attempt)]
