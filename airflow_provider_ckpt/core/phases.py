"""Phases of a pipeline: no batch is planned or begun while it is draining or stopped (semantics, section 3)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Phase of a pipeline: ``running``, ``draining`` or ``stopped``; ``drain_stop_resume.py`` changes it."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"

    @property
    def accepts_work(self) -> bool:
        """True if batches may be planned and begun in this phase, which is so only in ``running``."""
        return self is Phase.RUNNING
