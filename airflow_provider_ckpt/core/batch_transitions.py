"""The state machine of one partition: all transitions of its batches, and the movement of its checkpoint.

Every transition returns the events that it caused. None does I/O, reads a clock or draws a random number. The table of
transitions is in semantics, section 1.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.checkpoint import next_checkpoint
from airflow_provider_ckpt.core.errors import ErrorInfo, LedgerStateError
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, Phase, PlannedTicket


class Partition(PartitionView):
    """One partition in one generation, with the transitions of its batches.

    Transitions that may move the checkpoint accept ``advance=False``: a caller that makes many of them calls
    :meth:`advance` once at the end.
    """

    def plan(self, span: Range, *, records: int | None = None) -> list[Event]:
        """Plan a new batch, at ``planned_end`` or inside a gap.

        :param span: the batch's range
        :param records: counted or estimated number of records, if known
        :raises LedgerStateError: while draining or stopped, or if the range would leave a gap or overlap another batch
        """
        if self.phase is not Phase.RUNNING:
            raise LedgerStateError(f"nothing is planned while {self.phase.value}", batch=self._name(self.next_seq))
        if span.start != self.planned_end and not any(
            gap.start <= span.start and span.end <= gap.end for gap in self.gaps()
        ):
            raise LedgerStateError(
                f"range {span} does not continue what is planned, which ends at {position_text(self.planned_end)}",
                batch=self._name(self.next_seq),
                position=span.start,
            )
        if self.limit is not None and span.end > self.limit:
            raise LedgerStateError(
                f"range {span} reaches beyond {self.limit}, where this partition ends",
                batch=self._name(self.next_seq),
                position=self.limit,
            )
        key = BatchKey(self.generation, self.id, self.next_seq)
        self.batches[key.seq] = Batch(key, span, records=records)
        self.next_seq += 1
        self.planned_end = max(self.planned_end, span.end)
        return [self._event("planned", key.seq, range=[span.start, span.end], records=records)]

    def begin(
        self,
        ticket: PlannedTicket,
        *,
        epoch: int,
        now: datetime,
        at_most_once: bool = False,
        advance: bool = True,
    ) -> tuple[InFlightTicket, list[Event]]:
        """Start a batch by opening its next attempt.

        Starting a cancelled batch again removes its cancellation watermark, so the checkpoint may move.

        :param ticket: ticket of the planned batch
        :param epoch: the lease's epoch
        :param now: the current time, UTC, which is compared with the batch's ``not_before``
        :param at_most_once: whether the batch is resolved as ``sent`` at once, without a receipt
        :param advance: whether to move the checkpoint
        :return: ticket of the open attempt, and the events
        :raises LedgerStateError: while draining or stopped, before ``not_before``, or if the batch is not planned
        """
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        if self.phase is not Phase.RUNNING:
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

    def ack(self, receipt: Receipt, *, advance: bool = True) -> list[Event]:
        """Resolve a batch by its receipt.

        A second receipt of the batch changes nothing and is recorded by an event, as is a receipt of a batch that is
        unknown or was never started.

        :param receipt: the sink's receipt
        :param advance: whether to move the checkpoint
        :raises LedgerStateError: if the receipt's range differs from the batch's; such a receipt must be imported
        """
        seq = receipt.key.seq
        batch = self.batches.get(seq)
        if batch is None or receipt.key.generation != self.generation:
            below = receipt.range.end <= self.committed and seq < self.next_seq
            return [self._event("ack_duplicate" if below else "ack_spurious", seq)]
        if batch.state in RESOLVED and batch.state is not BatchState.SENT:
            return [self._event("ack_duplicate", seq)]
        if batch.state is BatchState.SUPERSEDED or not batch.started:
            return [self._event("ack_spurious", seq)]
        if batch.range != receipt.range:
            raise LedgerStateError(
                f"the receipt's range {receipt.range} is not the batch's {batch.range}", batch=self._name(seq)
            )
        self.batches[seq] = batch.resolved(receipt)
        event = self._event(
            "acked",
            seq,
            verdict=receipt.verdict.value,
            counts=receipt.counts.to_json(),
            range=[receipt.range.start, receipt.range.end],
        )
        return [event, *(self.advance() if advance else [])]

    def fail(
        self,
        ticket: InFlightTicket,
        error: ErrorInfo,
        *,
        not_before: datetime | None,
        next_round: bool = False,
        counts: bool = True,
    ) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt without a verdict: its result is unknown, so the batch is planned again.

        :param ticket: ticket of the open attempt
        :param error: the error that the lane reported
        :param not_before: earliest start of the next attempt, UTC
        :param next_round: whether this round's attempts are used up
        :param counts: whether the failure counts against ``max_attempts``; an outage of the whole sink does not
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
        """End an attempt that its lane never executed; not counted against ``max_attempts``."""
        return self._return_to_planned(ticket, "not_attempted")

    def abandon(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a crash or a forced stop interrupted; not counted against ``max_attempts``."""
        return self._return_to_planned(ticket, "abandoned")

    def fence(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a run of an older epoch left open; not counted against ``max_attempts``."""
        return self._return_to_planned(ticket, "fenced")

    def cancel(self, ticket: InFlightTicket) -> tuple[PlannedTicket, list[Event]]:
        """End an attempt that a user cancelled; the batch then sets the cancellation watermark."""
        planned, events = self._return_to_planned(ticket, "cancelled")
        self.batches[planned.key.seq] = replace(self.batches[planned.key.seq], cancelled=True)
        return planned, events

    def died_alone(self, ticket: InFlightTicket, *, limit: int) -> list[Event]:
        """End an attempt whose executor died while the batch ran alone; hold the batch after ``limit`` such deaths.

        :param ticket: ticket of the open attempt
        :param limit: number of deaths, over all attempts of the batch
        """
        planned, events = self._return_to_planned(ticket, "died_alone")
        seq = planned.key.seq
        self.batches[seq] = replace(self.batches[seq], deaths=self.batches[seq].deaths + 1, alone=True)
        if self.batches[seq].deaths >= limit:
            events += self.hold(planned, reason=f"its executor died {limit} times while it ran alone")[1]
        return events

    def run_alone(self, ticket: PlannedTicket) -> list[Event]:
        """Make the next attempt run alone in its wave, because the batch may have caused the crash of its lane."""
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        self.batches[batch.key.seq] = replace(batch, alone=True)
        return [self._event("run_alone", batch.key.seq)]

    def instruct(self, ticket: PlannedTicket | InFlightTicket, instruction: Instruction, *, reason: str) -> list[Event]:
        """Make the next attempt claim another verdict, because the policy or a user gives the batch up.

        An open attempt continues, and if it gets a receipt first, that one is valid. Failures are counted from 0 again
        for the attempts that claim the new verdict.

        :param ticket: ticket of the batch
        :param instruction: the instruction for the next attempt
        :param reason: the reason, stored in the event
        """
        batch = self._batch_of_ticket(ticket)
        self.batches[batch.key.seq] = replace(batch, instruction=instruction, failures=0, round=1, not_before=None)
        return [self._event("instructed", batch.key.seq, instruction=instruction.value, reason=reason)]

    def hold(self, ticket: PlannedTicket | InFlightTicket, *, reason: str) -> tuple[HeldTicket, list[Event]]:
        """Hold a batch until a user decides about it; it continues to block the checkpoint.

        An open attempt is closed but not undone: a receipt of it that arrives later still resolves the batch.

        :param ticket: ticket of the batch
        :param reason: the reason, stored in the event
        """
        batch = self._batch_of_ticket(ticket)
        self.batches[batch.key.seq] = replace(batch, state=BatchState.HELD, epoch=None, not_before=None)
        return HeldTicket(batch.key), [self._event("held", batch.key.seq, reason=reason)]

    def release(self, ticket: HeldTicket) -> tuple[PlannedTicket, list[Event]]:
        """Return a held batch to ``planned``, with its counters reset, so that it gets all attempts once more."""
        batch = self._expect(ticket.key.seq, BatchState.HELD)
        self.batches[batch.key.seq] = replace(
            batch, state=BatchState.PLANNED, failures=0, round=1, deaths=0, alone=False, not_before=None
        )
        return PlannedTicket(batch.key), [self._event("released", batch.key.seq)]

    def skip(self, ticket: PlannedTicket, *, reason: str) -> list[Event]:
        """Skip a batch in the ledger alone. A batch that was started must claim ``void`` in the sink instead.

        :raises LedgerStateError: if the batch was ever started
        """
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        if batch.started:
            raise LedgerStateError("it was started, so only a receipt ends it", batch=self._name(batch.key.seq))
        self.batches[batch.key.seq] = replace(batch, state=BatchState.SKIPPED, cancelled=False)
        span = [batch.range.start, batch.range.end]
        return [self._event("skipped", batch.key.seq, reason=reason, range=span), *self.advance()]

    def supersede(self, seq: int) -> list[Event]:
        """Mark an unresolved batch as superseded, because a rewind or an imported receipt replaces it.

        :raises LedgerStateError: if the batch is resolved or unknown
        """
        batch = self.batches.get(seq)
        if batch is None or batch.state not in BLOCKING:
            raise LedgerStateError("only unresolved work can be superseded", batch=self._name(seq))
        self.batches[seq] = replace(batch, state=BatchState.SUPERSEDED, cancelled=False, epoch=None)
        return [self._event("superseded", seq)]

    def advance(self) -> list[Event]:
        """Move ``committed`` over the resolved batches that follow it without a gap, and remove them from ``batches``.

        The cancellation watermark limits the move. Removed batches are added to ``passed``.
        """
        committed = next_checkpoint(self.committed, self.batches)
        if committed == self.committed:
            return []
        before, self.committed = self.committed, committed
        self.passed += [b for b in self.batches.values() if b.state in RESOLVED and b.range.end <= committed]
        self.batches = {seq: b for seq, b in self.batches.items() if b.state in BLOCKING or b.range.end > committed}
        return [self._event("checkpoint", None, before=before, after=committed)]

    def _return_to_planned(self, ticket: InFlightTicket, kind: str) -> tuple[PlannedTicket, list[Event]]:
        batch = self._open_batch(ticket)
        self.batches[batch.key.seq] = replace(batch, state=BatchState.PLANNED, epoch=None)
        return PlannedTicket(batch.key), [self._event(kind, batch.key.seq, attempt=ticket.attempt)]
