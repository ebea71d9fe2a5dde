"""Start the worker processes, kill and freeze them, end their database sessions, and start replacements."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from random import Random
from types import TracebackType
from typing import Any, Self

from tests.chaos.storm import worker
from tests.chaos.storm.scene import Orders

_AT_REST = 2
"""Workers that may be frozen at the same time."""

_PATIENCE = 40.0
"""Seconds that workers get to end by themselves."""


@dataclass(slots=True)
class _Slot:
    orders: Orders
    process: BaseProcess | None = None
    lives: int = 0
    thaws: float | None = None


@dataclass(slots=True)
class Weather:
    """The worker processes of a storm, and the faults injected into them.

    :param orders: for all of them; each gets a name, a slot and a seed of its own
    :param every: commands between two blows
    :param end_session: ends one of the ledger's or the sink's sessions at the database; says whether there was one
    """

    orders: Orders
    number: int
    random: Random
    every: int
    end_session: Callable[[], bool] | None = None
    befell: Counter[str] = field(default_factory=Counter)
    _slots: list[_Slot] = field(default_factory=list)
    _next: int = 0
    _context: Any = None
    _counts: Any = None
    _stop: Any = None

    def __enter__(self) -> Self:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([worker.__name__])
        self._counts = self._context.RawArray("q", self.number)
        self._stop = self._context.RawValue("b", 0)
        self._slots = [_Slot(replace(self.orders, slot=slot)) for slot in range(self.number)]
        self._next = self.every
        for slot in self._slots:
            self._start(slot)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.value = 1
        deadline = time.monotonic() + (_PATIENCE if kind is None else 1.0)
        self.thaw()
        for slot in self._slots:
            assert slot.process is not None
            slot.process.join(max(0.0, deadline - time.monotonic()))
            if slot.process.exitcode is None:
                self.befell["stuck"] += 1
                self._signal(slot, signal.SIGKILL)
                slot.process.join()
            elif slot.process.exitcode not in (0, -signal.SIGKILL):
                self.befell["died"] += 1

    @property
    def commands(self) -> int:
        """Return the number of commands that the ledger has decided."""
        return sum(self._counts)

    def thaw(self) -> None:
        """Continue every frozen worker process."""
        for slot in self._slots:
            self._thaw(slot)

    def blow(self) -> None:
        """Inject the faults that are due, and start a worker in every slot without one."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.thaws is not None and now >= slot.thaws:
                self._thaw(slot)
            if slot.process is None or slot.process.exitcode is not None:
                self.befell["died"] += 1
                self._start(slot)
        if self.commands >= self._next:
            self._next += self.every
            time.sleep(self.random.uniform(0, 0.01))
            self._strike()

    def _strike(self) -> None:
        awake = [slot for slot in self._slots if slot.thaws is None]
        dice = self.random.random()
        if dice < 0.6 or not awake:
            self._kill(self.random.choice(self._slots))
        elif dice < 0.85 and self.number - len(awake) < _AT_REST:
            slot = self.random.choice(awake)
            self._signal(slot, signal.SIGSTOP)
            slot.thaws = time.monotonic() + self.random.uniform(0.3, 1.5)
            self.befell["frozen"] += 1
        elif self.end_session is not None:
            self.befell["sessions_ended"] += self.end_session()
        else:
            self._kill(self.random.choice(self._slots))

    def _kill(self, slot: _Slot) -> None:
        assert slot.process is not None
        if self._signal(slot, signal.SIGKILL):
            slot.process.join()
            self.befell["kills"] += slot.process.exitcode == -signal.SIGKILL
        slot.thaws = None
        self._start(slot)

    def _start(self, slot: _Slot) -> None:
        slot.lives += 1
        name = f"{slot.orders.slot}-{slot.lives}"
        orders = replace(slot.orders, name=name, seed=f"{self.orders.seed}/{name}")
        slot.process = self._context.Process(target=worker.main, args=(orders, self._counts, self._stop))
        slot.process.start()

    def _thaw(self, slot: _Slot) -> None:
        if slot.thaws is not None:
            self._signal(slot, signal.SIGCONT)
            slot.thaws = None

    @staticmethod
    def _signal(slot: _Slot, number: signal.Signals) -> bool:
        assert slot.process is not None
        assert slot.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(slot.process.pid, number)
            return True
        return False
