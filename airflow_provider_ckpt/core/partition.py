"""Change the states of the batches of a partition: plan, instruct, skip and supersede a batch (semantics, section 1).

Once an attempt of a batch has begun, only a receipt in the sink resolves the batch. So only a batch without any attempt
can be skipped in the ledger; any other batch is instructed to claim the verdict ``void`` in the sink. A rewind
supersedes unresolved batches, and so does the sink's receipt of another batch for their positions; a superseded batch
is not sent any more.

The other transitions are in ``acknowledgements.py``, ``attempts.py``, ``held_batches.py`` and ``executor_killer.py``.
Every transition returns the events that it caused, for the audit log. No transition does I/O, reads a clock or draws a
random number.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_ckpt.core.batch import BLOCKING, Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.executor_killer import IsolatingPartition
from airflow_provider_ckpt.core.ranges import Range, position_text
from airflow_provider_ckpt.core.tickets import Event, InFlightTicket, PlannedTicket


class Partition(IsolatingPartition):
    """One partition in one generation, with the transitions of its batches from state to state.

    A transition takes a ticket: a value that names the batch and proves that its state was checked (see
    :mod:`~airflow_provider_ckpt.core.tickets`). Transitions that may move the checkpoint accept ``advance=False``: a
    caller that makes many of them calls :meth:`advance` once at the end.
    """

    def plan(self, span: Range, *, records: int | None = None) -> list[Event]:
        """Plan a new batch, at the end of the plan or inside a gap.

        :param span: the batch's range
        :param records: counted or estimated number of records; None if unknown
        :return: the events for the audit log
        :raises LedgerStateError: while draining or stopped, or if the range would leave a gap, overlap another batch or
            reach beyond the end of a side partition
        """
        if not self.phase.accepts_work:
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

    def instruct(self, ticket: PlannedTicket | InFlightTicket, instruction: Instruction, *, reason: str) -> list[Event]:
        """Make the next attempt of a batch claim the verdict ``rejected`` or ``void``, because the batch is given up.

        An open attempt continues. If it obtains a receipt first, that receipt is valid. Failures are counted from 0
        again for the attempts that claim the new verdict.

        :param ticket: the batch, planned or in flight
        :param instruction: the instruction for the next attempt: reject or void
        :param reason: the reason of the policy or the user, stored in the event
        :return: the events for the audit log
        :raises LedgerStateError: if the batch is no longer in the state that the ticket names
        """
        batch = self._batch_of_ticket(ticket)
        self.batches[batch.key.seq] = replace(batch, instruction=instruction, failures=0, round=1, not_before=None)
        return [self._event("instructed", batch.key.seq, instruction=instruction.value, reason=reason)]

    def skip(self, ticket: PlannedTicket, *, reason: str) -> list[Event]:
        """Skip a batch that was never started: resolve it as ``skipped`` in the ledger, without a receipt.

        A batch that was started must claim the verdict ``void`` in the sink instead, see :meth:`instruct`.

        :param ticket: the planned batch
        :param reason: the reason, stored in the event
        :return: the events for the audit log
        :raises LedgerStateError: if the batch was ever started
        """
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        if batch.started:
            raise LedgerStateError("it was started, so only a receipt ends it", batch=self._name(batch.key.seq))
        self.batches[batch.key.seq] = replace(batch, state=BatchState.SKIPPED, cancelled=False)
        span = [batch.range.start, batch.range.end]
        return [self._event("skipped", batch.key.seq, reason=reason, range=span), *self.advance()]

    def supersede(self, seq: int) -> list[Event]:
        """Mark an unresolved batch as superseded, so that it is not sent any more.

        A rewind supersedes batches, and so does the sink's receipt of another batch for the same positions.

        :param seq: the batch's seq
        :return: the events for the audit log
        :raises LedgerStateError: if the batch is resolved or unknown
        """
        batch = self.batches.get(seq)
        if batch is None or batch.state not in BLOCKING:
            raise LedgerStateError("only unresolved work can be superseded", batch=self._name(seq))
        self.batches[seq] = replace(batch, state=BatchState.SUPERSEDED, cancelled=False, epoch=None)
        return [self._event("superseded", seq)]
