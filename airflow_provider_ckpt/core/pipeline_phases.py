"""All partitions of a pipeline and their common phase: drain, stop, force stop, resume, and side partitions.

See semantics, section 3. A side partition re-reads a range of a source partition that the checkpoint has passed, or
replays dead letters, independently of the source partition's order.
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


class SideKind(StrEnum):
    """Purpose of a side partition; the first part of its id."""

    RECOVERY = "recovery"
    REPLAY = "replay"
    DLQ = "dlq"


class PipelineState:
    """The partitions of one pipeline, by id, and their common phase.

    :param partitions: the partitions
    :param phase: the phase
    :param generation: the newest generation of any partition so far; it never decreases
    """

    def __init__(
        self, partitions: Iterable[Partition] = (), *, phase: Phase = Phase.RUNNING, generation: int = 1
    ) -> None:
        self.partitions = {partition.id: partition for partition in partitions}
        self.generation = max([generation, *(partition.generation for partition in self.partitions.values())])
        self._enter(phase)

    @property
    def phase(self) -> Phase:
        """The pipeline's phase."""
        return self._phase

    @property
    def in_flight(self) -> int:
        """Number of open attempts."""
        return sum(len(partition.in_flight) for partition in self.partitions.values())

    def partition(self, name: str) -> Partition:
        """Return a partition by its id.

        :raises LedgerStateError: if there is none; the error names the first ten partitions
        """
        found = self.partitions.get(name)
        if found is None:
            known = ", ".join(sorted(self.partitions)[:10]) or "none"
            raise LedgerStateError(f"there is no partition {name!r}.", hint=f"Known: {known}.")
        return found

    def drain(self, *, reason: str) -> list[Event]:
        """Enter ``draining``: no batch is planned or started any more; batches in flight are settled.

        :raises LedgerStateError: if the pipeline is stopped
        """
        if self._phase is Phase.STOPPED:
            raise LedgerStateError("it is stopped, so there is nothing to drain.", hint="Resume it first.")
        return self._change_phase(Phase.DRAINING, reason)

    def stop(self, *, reason: str) -> list[Event]:
        """Stop a drained pipeline. Planned and held batches may remain, and continue to block the checkpoint.

        :raises LedgerStateError: if the pipeline is running, or a batch is in flight
        """
        if self._phase is Phase.RUNNING:
            raise LedgerStateError("it is running.", hint="Drain it first, or force the stop.")
        if self.in_flight:
            raise LedgerStateError(
                f"{self.in_flight} batches are in flight.",
                hint="Wait until the run has settled them, or force the stop, which abandons them.",
            )
        return self._change_phase(Phase.STOPPED, reason)

    def force_stop(self, *, reason: str) -> list[Event]:
        """Stop at once and abandon the batches in flight; the checkpoint does not move."""
        events: list[Event] = []
        for partition in self.partitions.values():
            for seq in partition.in_flight:
                events += partition.abandon(partition.sending(seq))[1]
        return events + self._change_phase(Phase.STOPPED, reason, force=True)

    def resume(self, *, reason: str) -> list[Event]:
        """Enter ``running``: batches are planned and started again."""
        return self._change_phase(Phase.RUNNING, reason)

    def re_read(self, side: SideKind, source: str, span: Range) -> tuple[Partition, list[Event]]:
        """Add a side partition that reads a range of a source partition again.

        :param side: the purpose
        :param source: the source partition's id
        :param span: the range
        :return: the side partition, and the events
        :raises LedgerStateError: as :meth:`check_re_read`
        """
        self.check_re_read(source, span)
        return self._side(side, source, span, {})

    def replay(self, source: str, dead_letters: Replay) -> tuple[Partition, list[Event]]:
        """Add a side partition that replays dead letters of a source partition; its positions number them from 0.

        :raises LedgerStateError: if there is no such source partition
        """
        self.partition(source)
        return self._side(SideKind.DLQ, source, Range(0, dead_letters.records), {"state": dead_letters.to_json()})

    def recall(self, source: str, generation: int, dead_letters: Replay) -> tuple[Partition, list[Event]]:
        """Restore a side partition of dead letters that this ledger has lost, with its former generation.

        :param source: the source partition's id
        :param generation: the side partition's generation
        :param dead_letters: the replay
        :return: the side partition, and the events
        """
        return self._side(
            SideKind.DLQ, source, Range(0, dead_letters.records), {"state": dead_letters.to_json()}, generation
        )

    def _side(
        self, side: SideKind, source: str, span: Range, more: dict[str, Any], generation: int | None = None
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
        """Raise an error if a range of a source partition may not be read again.

        :raises LedgerStateError: if the partition is a side partition, or the range reaches beyond the checkpoint
        """
        origin = self.partition(source)
        if origin.limit is not None:
            raise LedgerStateError(f"{source!r} is a side partition.", hint="Name the source partition itself.")
        if span.end > origin.committed:
            raise LedgerStateError(
                f"{span} of partition {source!r} reaches beyond the checkpoint, {origin.committed}: records beyond it "
                "are still to be delivered.",
                position=origin.committed,
                hint="End the range at the checkpoint.",
            )

    def resend_range(self, source: str, span: Range) -> tuple[Partition, list[Event]]:
        """Add a side partition that sends a range again that the sink has lost.

        :raises LedgerStateError: as :meth:`require_resolved`
        """
        self.require_resolved(source, span)
        return self._side(SideKind.RECOVERY, source, span, {})

    def require_resolved(self, source: str, span: Range) -> None:
        """Raise an error if a part of a range is not resolved, because its batch will deliver that part.

        :raises LedgerStateError: if a part is still to be delivered, or the partition is a side partition
        """
        origin = self.partition(source)
        mine = [batch.key for batch in origin.blocking.values() if batch.range.overlaps(span)]
        if origin.limit is not None or span.end > origin.planned_end or mine:
            owner = f"batch {mine[0]} owns a part of it" if mine else f"the plan ends at {origin.planned_end}"
            raise LedgerStateError(f"{span} of partition {source!r} is still to be delivered: {owner}.")

    def _change_phase(self, phase: Phase, reason: str, *, force: bool = False) -> list[Event]:
        """Enter a phase; the event's kind is ``phase_unchanged`` if the pipeline is in that phase already."""
        before = self._phase
        self._enter(phase)
        detail = {"before": before.value, "after": phase.value, "reason": reason, "force": force}
        return [Event("phase_unchanged" if before is phase else "phase", "", self.generation, None, detail)]

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        for partition in self.partitions.values():
            partition.phase = phase
