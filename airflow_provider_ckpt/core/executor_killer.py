"""Isolate a batch that may have killed its Spark executor: it runs alone, and is held if executors keep dying.

A wave is one Spark job, and a lane one of its Spark tasks, which sends a list of batches in order. In each lane of the
lost wave, the first batch without a receipt is suspected. It runs alone from then on, so that further crashes do not
use up the attempts of other batches (semantics, section 7).
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.held_batches import HoldingPartition
from airflow_provider_ckpt.core.tickets import Event, InFlightTicket, PlannedTicket


def suspects(lanes: Iterable[Iterable[BatchKey]], unresolved: Container[BatchKey]) -> Iterator[BatchKey]:
    """Yield the batches that may have killed their Spark executor: in each lane, the first batch without a receipt.

    :param lanes: batches of the lost wave, each lane in order
    :param unresolved: the batches without a receipt
    """
    for lane in lanes:
        yield from itertools.islice((key for key in lane if key in unresolved), 1)


class IsolatingPartition(HoldingPartition):
    """A partition that can make a batch run alone, and counts how often the executor dies during such attempts."""

    def run_alone(self, ticket: PlannedTicket) -> list[Event]:
        """Make the batch's next attempt the only one in its wave, because it may have caused the crash of its lane.

        If the executor dies again, no other batch loses an attempt; :meth:`died_alone` counts these deaths.

        :param ticket: the planned batch
        :return: the events for the audit log
        :raises LedgerStateError: if the batch is not planned
        """
        batch = self._expect(ticket.key.seq, BatchState.PLANNED)
        self.batches[batch.key.seq] = replace(batch, alone=True)
        return [self._event("run_alone", batch.key.seq)]

    def died_alone(self, ticket: InFlightTicket, *, limit: int) -> list[Event]:
        """End an attempt whose executor died while the batch ran alone; hold the batch after ``limit`` such deaths.

        A batch that kills its executor would otherwise do so in every attempt.

        :param ticket: the open attempt
        :param limit: number of deaths, since the batch was planned or last released, at which it is held
        :return: the events for the audit log
        :raises LedgerStateError: if the attempt is not the open one
        """
        planned, events = self._return_to_planned(ticket, "died_alone")
        seq = planned.key.seq
        self.batches[seq] = replace(self.batches[seq], deaths=self.batches[seq].deaths + 1, alone=True)
        if self.batches[seq].deaths >= limit:
            events += self.hold(planned, reason=f"its executor died {limit} times while it ran alone")[1]
        return events
