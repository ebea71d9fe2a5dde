"""Define the phases of a pipeline, and change them: drain, stop, force stop and resume (semantics, section 3).

No batch is planned or begun while a pipeline is draining or stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.tickets import Event

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.partition import Partition


class Phase(StrEnum):
    """Phase of a pipeline: ``running``, ``draining`` or ``stopped``; :class:`PipelineState` changes it."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"

    @property
    def accepts_work(self) -> bool:
        """True if batches may be planned and begun in this phase, which is so only in ``running``."""
        return self is Phase.RUNNING


class PipelineState:
    """The partitions of one pipeline, by id, and the phase that they have in common.

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
        """The pipeline's phase: running, draining or stopped."""
        return self._phase

    @property
    def in_flight(self) -> int:
        """Number of open attempts in all partitions."""
        return sum(len(partition.in_flight) for partition in self.partitions.values())

    def partition(self, name: str) -> Partition:
        """Return a partition by its id.

        :raises LedgerStateError: if the pipeline has no such partition; the error names the first ten partitions
        """
        found = self.partitions.get(name)
        if found is None:
            known = ", ".join(sorted(self.partitions)[:10]) or "none"
            raise LedgerStateError(f"there is no partition {name!r}.", hint=f"Known: {known}.")
        return found

    def drain(self, *, reason: str) -> list[Event]:
        """Enter the phase ``draining``: no batch is planned or started any more; batches in flight are still settled.

        :param reason: the actor's reason, stored in the event
        :return: the event for the audit log
        :raises LedgerStateError: if the pipeline is stopped
        """
        if self._phase is Phase.STOPPED:
            raise LedgerStateError("it is stopped, so there is nothing to drain.", hint="Resume it first.")
        return self._change_phase(Phase.DRAINING, reason)

    def stop(self, *, reason: str) -> list[Event]:
        """Stop a drained pipeline. Planned and held batches may remain, and continue to block the checkpoint.

        :param reason: the actor's reason, stored in the event
        :return: the event for the audit log
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
        """Stop at once: end the attempts of all batches in flight, and plan these batches again.

        The checkpoint does not move.

        :param reason: the actor's reason, stored in the event
        :return: the events for the audit log
        """
        events: list[Event] = []
        for partition in self.partitions.values():
            for seq in partition.in_flight:
                events += partition.abandon(partition.in_flight_ticket(seq))[1]
        return events + self._change_phase(Phase.STOPPED, reason, force=True)

    def resume(self, *, reason: str) -> list[Event]:
        """Enter the phase ``running``, in which batches are planned and started again.

        :param reason: the actor's reason, stored in the event
        :return: the event for the audit log
        """
        return self._change_phase(Phase.RUNNING, reason)

    def _change_phase(self, phase: Phase, reason: str, *, force: bool = False) -> list[Event]:
        """Enter a phase in all partitions, and return the event ``phase``.

        The event is ``phase_unchanged`` if the pipeline is in that phase already.

        :param phase: the phase to enter
        :param reason: the actor's reason, stored in the event
        :param force: whether attempts of batches in flight were ended without their result; stored in the event
        """
        before = self._phase
        self._enter(phase)
        detail = {"before": before.value, "after": phase.value, "reason": reason, "force": force}
        return [Event("phase_unchanged" if before is phase else "phase", "", self.generation, None, detail)]

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        for partition in self.partitions.values():
            partition.phase = phase
