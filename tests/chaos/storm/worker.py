"""Process of the storm: it sends the commands of runs, users' actions and stale commands in turn until it is ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import Array, c_bool, c_longlong
from random import Random

from sqlalchemy.exc import DBAPIError

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import LedgerUnavailableError
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.types import Lease
from airflow_provider_ckpt.replication import process_lease_owner as owners
from tests.chaos.storm import defects, users
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.journal import Is, Journal
from tests.chaos.storm.lanes import Lanes
from tests.chaos.storm.run import Run, a_lease
from tests.chaos.storm.scene import PIPELINES, Orders
from tests.chaos.storm.sink import AbstractSink
from tests.chaos.storm.stale import Zombie, impostor

_TRIES = 5

_GRAVES = 6
"""Leases that are over and still used."""


class Worker:
    """The work of one process.

    :param orders: where, and with which random numbers
    :param over: whether it is time to end
    """

    def __init__(self, orders: Orders, commands: Commands, sink: AbstractSink, over: Callable[[], bool]) -> None:
        self._over = over
        self._random = Random(orders.seed)
        self._commands = commands
        self._sink = sink
        self._lanes = Lanes(sink, self._random)
        self._graves: list[Lease] = []

    def turn(self) -> None:
        """Make a run, a user's action or a stale command, chosen at random."""
        pipeline = self._random.choice(list(PIPELINES))
        dice = self._random.random()
        if dice < 0.12:
            users.a_person(self._commands, pipeline, self._random)
        elif dice < 0.24 and self._graves:
            Zombie(self._commands, self._random.choice(self._graves), self._random).stir()
        elif dice < 0.30:
            self._behind_fence(pipeline)
        else:
            self._run(pipeline)

    def _run(self, pipeline: str) -> None:
        run = self._acquire(pipeline)
        if run is None:
            time.sleep(self._random.uniform(0, 0.06))
            return
        good = run.open()
        while good and not self._over() and self._random.random() < 0.88:
            good = run.work(self._random.randint(2, 8))
            if good and self._random.random() < 0.15:
                Zombie(self._commands, impostor(run.lease, self._random), self._random).stir()
        self._end(run)

    def _behind_fence(self, pipeline: str) -> None:
        """Rewind or force a stop as a user does: acquire the lease, fence, reconcile, apply the action, release."""
        run = self._acquire(pipeline)
        if run is None:
            return
        if run.open() and run.partitions:
            act = users.an_act(run.partitions, self._random, behind_fence=True)
            stop = self._random.random() < 0.1
            self._commands.act_under_lease(run.lease, Action(ActionKind.FORCE_STOP) if stop else act)
        self._end(run)

    def _acquire(self, pipeline: str) -> Run | None:
        dag_run = of_task("storm", self._commands.journal.next_tag, pipeline, "replicate")
        owner = dag_run if self._random.random() < 0.6 else owners.of_this_process()
        lease = a_lease(self._commands, self._sink, pipeline, owner, self._random).value
        if lease is None:
            return None
        return Run(self._commands, self._sink, self._lanes, self._random, lease, PIPELINES[pipeline])

    def _end(self, run: Run) -> None:
        """Release the lease, and sometimes send more commands under it; or leave it to expire."""
        if self._random.random() < 0.7 and self._commands.release(run.lease).end is Is.OK:
            self._graves = [*self._graves, run.lease][-_GRAVES:]


def main(orders: Orders, counts: Array[c_longlong], stop: c_bool) -> None:
    """Work until told to stop, or until the parent process is gone."""
    if orders.defect is not None:
        defects.bring_in(orders.defect)
    parent = os.getppid()

    def count() -> None:
        counts[orders.slot] += 1

    def over() -> bool:
        return bool(stop.value) or os.getppid() != parent

    sink = AbstractSink(orders.sink)
    path = orders.folder / f"{orders.name}.journal"
    with _opened(orders.ledger) as ledger, Journal(path, orders.name, count) as journal:
        worker = Worker(orders, Commands(ledger, journal), sink, over)
        while not over():
            try:
                worker.turn()
            except DBAPIError:
                time.sleep(0.01)
    sink.close()


def _opened(url: str) -> Ledger:
    """The ledger; once more if the session was ended while it was being opened."""
    for _ in range(_TRIES):
        with suppress(LedgerUnavailableError):
            return Ledger.open(url)
    return Ledger.open(url)
