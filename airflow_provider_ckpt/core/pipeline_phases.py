"""All partitions of a pipeline under one phase: drain, stop, force stop, resume, and side partitions.

Semantics, section 3. FastForward's machine holds its sources the same way. A side partition re-reads a stretch of a
source partition that the checkpoint has passed, in an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.dead_letters import Replay
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.tickets import Event, Phase


class Side(StrEnum):
    """What a side partition is for; the first part of its id."""

    RECOVERY = "recovery"
    REPLAY = "replay"
    DLQ = "dlq"


class PipelineMachine:
    """The partitions of one pipeline, by id, and the phase that all of them are in.

    :param generation: the newest generation that any partition was given; it only grows
    """

    def __init__(
        self, partitions: Iterable[Partition] = (), *, phase: Phase = Phase.RUNNING, generation: int = 1
    ) -> None:
        self.partitions = {partition.id: partition for partition in partitions}
        self.generation = max([generation, *(partition.generation for partition in self.partitions.values())])
        self._enter(phase)

    @property
    def phase(self) -> Phase:
        """What the pipeline may do."""
        return self._phase

    @property
    def in_flight(self) -> int:
        """How many attempts are open."""
        return sum(len(partition.in_flight) for partition in self.partitions.values())

    def partition(self, name: str) -> Partition:
        """A partition by id.

        :raises LedgerStateError: if there is none; names those there are
        """
        found = self.partitions.get(name)
        if found is None:
            known = ", ".join(sorted(self.partitions)[:10]) or "none"
            raise LedgerStateError(f"there is no partition {name!r}.", hint=f"Known: {known}.")
        return found

    def drain(self, *, reason: str) -> list[Event]:
        """Plan and begin nothing more; what is in flight ends.

        :raises LedgerStateError: if the pipeline is stopped
        """
        if self._phase is Phase.STOPPED:
            raise LedgerStateError("it is stopped, so there is nothing to drain.", hint="Resume it first.")
        return self._change(Phase.DRAINING, reason)

    def stop(self, *, reason: str) -> list[Event]:
        """Stop a drained pipeline; planned and held work may remain, and goes on blocking the checkpoint.

        :raises LedgerStateError: before it was drained, or while anything is in flight
        """
        if self._phase is Phase.RUNNING:
            raise LedgerStateError("it is running.", hint="Drain it first, or force the stop.")
        if self.in_flight:
            raise LedgerStateError(
                f"{self.in_flight} batches are in flight.",
                hint="Wait until the run has settled them, or force the stop, which abandons them.",
            )
        return self._change(Phase.STOPPED, reason)

    def force_stop(self, *, reason: str) -> list[Event]:
        """Stop at once: abandon what is in flight; the checkpoint stays where it is."""
        events: list[Event] = []
        for partition in self.partitions.values():
            for seq in partition.in_flight:
                events += partition.abandon(partition.sending(seq))[1]
        return events + self._change(Phase.STOPPED, reason, force=True)

    def resume(self, *, reason: str) -> list[Event]:
        """Let the pipeline plan and begin again, from draining or stopped."""
        return self._change(Phase.RUNNING, reason)

    def re_read(self, side: Side, source: str, span: Range) -> tuple[Partition, list[Event]]:
        """Add a side partition that reads a stretch of a source partition once more.

        :raises LedgerStateError: see :meth:`check_re_read`
        """
        self.check_re_read(source, span)
        return self._side(side, source, span, {})

    def replay(self, source: str, letters: Replay) -> tuple[Partition, list[Event]]:
        """Add a side partition that sends dead letters of a source partition once more; its positions number them.

        :raises LedgerStateError: if there is no such partition
        """
        self.partition(source)
        return self._side(Side.DLQ, source, Range(0, letters.records), {"state": letters.to_json()})

    def recall(self, source: str, generation: int, letters: Replay) -> tuple[Partition, list[Event]]:
        """Add a side partition of dead letters that was forgotten, under the number that it had."""
        return self._side(Side.DLQ, source, Range(0, letters.records), {"state": letters.to_json()}, generation)

    def _side(
        self, side: Side, source: str, span: Range, more: dict[str, Any], generation: int | None = None
    ) -> tuple[Partition, list[Event]]:
        number = generation or self.generation + 1
        self.generation = max(self.generation, number)
        made = Partition(
            f"{side}:{number}:{source}",
            generation=number,
            base=span.start,
            limit=span.end,
            phase=self._phase,
        )
        self.partitions[made.id] = made
        detail = {"range": [span.start, span.end], "source": source, **more}
        return made, [Event("side_partition_started", made.id, made.generation, None, detail)]

    def check_re_read(self, source: str, span: Range) -> None:
        """Make sure that a stretch may be read once more.

        :raises LedgerStateError: if it reaches beyond the checkpoint, where batches own it already
        """
        origin = self.partition(source)
        if origin.limit is not None:
            raise LedgerStateError(f"{source!r} is a side partition.", hint="Name the source partition itself.")
        if span.end > origin.committed:
            raise LedgerStateError(
                f"{span} of partition {source!r} reaches beyond the checkpoint, {origin.committed}: what lies there is "
                "still to be delivered.",
                position=origin.committed,
                hint="End the range at the checkpoint.",
            )

    def re_read_lost(self, source: str, span: Range) -> tuple[Partition, list[Event]]:
        """Add a side partition that sends again what a sink has lost.

        :raises LedgerStateError: see :meth:`check_lost`
        """
        self.check_lost(source, span)
        return self._side(Side.RECOVERY, source, span, {})

    def check_lost(self, source: str, span: Range) -> None:
        """Make sure that a stretch is resolved, at or beyond the checkpoint, so that nothing else will send it.

        :raises LedgerStateError: if a part of it is still to be delivered
        """
        origin = self.partition(source)
        mine = [batch.key for batch in origin.blocking.values() if batch.range.overlaps(span)]
        if origin.limit is not None or span.end > origin.planned_end or mine:
            owner = f"batch {mine[0]} owns a part of it" if mine else f"the plan ends at {origin.planned_end}"
            raise LedgerStateError(f"{span} of partition {source!r} is still to be delivered: {owner}.")

    def _change(self, phase: Phase, reason: str, *, force: bool = False) -> list[Event]:
        """Enter a phase; where the pipeline is in it already, the event says so."""
        before = self._phase
        self._enter(phase)
        detail = {"before": before.value, "after": phase.value, "reason": reason, "force": force}
        return [Event("phase_unchanged" if before is phase else "phase", "", self.generation, None, detail)]

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        for partition in self.partitions.values():
            partition.phase = phase
