"""A run: acquire the lease, fence, reconcile, plan, execute waves, settle. What operators, the CLI and tests call.

The order is semantics, section 4: nothing is begun before every receipt of the sink has been read behind the fence.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.protocols import Connection, PlanRequest, SinkContext, Todo
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, LeaseBusyError
from airflow_provider_ckpt.core.policy import route
from airflow_provider_ckpt.replication import owner as owners
from airflow_provider_ckpt.replication.renewal import Renewal
from airflow_provider_ckpt.replication.summary import RunSummary

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.records import Lease
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.engine import Engine

log = logging.getLogger(__name__)

_LEASE_PAUSE = 0.5


@dataclass(frozen=True)
class Setup:
    """What every use case needs.

    :param connections: gives the connection of an id, or raises :class:`ConfigError`
    :param owner: the lease's owner (see ``owner.py``)
    """

    pipeline: Pipeline
    ledger: Ledger
    connections: Callable[[str], Connection]
    owner: str

    def connection(self, name: str | None) -> Connection | None:
        """The connection of an id, None for None."""
        return self.connections(name) if name else None


class Run:
    """A held lease on a pipeline, with its source and sink open.

    As a context manager it closes them in the end, and after an error releases the lease too.

    :param summary: what this process did in the run
    """

    def __init__(self, setup: Setup, lease: Lease, opened: Opened) -> None:
        self.setup = setup
        self.pipeline = setup.pipeline
        self.ledger = setup.ledger
        self.lease = lease
        self.source = opened.source
        self.sink = opened.sink
        self.id = uuid.uuid4().hex[:12]
        self.summary = RunSummary(self.pipeline.name, lease.epoch, run=self.id)
        self._started = time.monotonic()
        self.bounds: dict[str, int] = {}
        self._more = True
        self._closed = False
        self._renewal = Renewal(setup.ledger, lease)

    @property
    def epoch(self) -> int:
        """The lease's epoch."""
        return self.lease.epoch

    def check(self) -> None:
        """Raise if the lease was lost.

        :raises StaleEpochError: naming both epochs
        """
        self._renewal.check()

    def reconcile(self) -> None:
        """Settle what has a receipt; behind the fence, attempts of older epochs that have none go back to planned."""
        with self.step("reconcile"):
            records = self.ledger.partitions(self.pipeline.name)
            after = {name: record.partition.committed for name, record in records.items()}
            found = self.ledger.reconcile(self.lease, self.sink.receipts(after), now=utcnow())
            self.summary.settled([*found.acked, *found.imported])
        if found.acked or found.imported or found.fenced:
            log.info(
                "Reconciled %s: %d batches already had a receipt, %d receipts were unknown to the ledger, "
                "%d attempts of older epochs were fenced",
                self.pipeline.name,
                len(found.acked),
                len(found.imported),
                len(found.fenced),
            )

    def plan(self) -> int:
        """Plan what the source holds beyond the plan, as far as ``max_in_flight`` allows.

        :returns: how many batches are planned and may be begun now or later
        """
        with self.step("plan"):
            records = self.ledger.partitions(self.pipeline.name)
            blocking = [batch for record in records.values() for batch in record.partition.blocking.values()]
            budget = self.pipeline.consumer.max_in_flight - sum(batch.records or 1 for batch in blocking)
            planned: list[Batch] = []
            if budget > 0:
                todo = []
                for name, record in records.items():
                    todo += [Todo(name, gap.start, gap.end) for gap in record.partition.gaps()]
                    todo.append(Todo(name, record.partition.planned_end))
                found = self.source.plan(
                    PlanRequest(
                        todo,
                        self.pipeline.commit_strategy.records_per_batch,
                        budget,
                        self.ledger.files(self.pipeline.name),
                        {name: record.state for name, record in records.items()},
                    )
                )
                self._more = found.more
                self.bounds.update(found.bounds)
                planned = self.ledger.plan(self.lease, found)
        waiting = sum(batch.state is BatchState.PLANNED for batch in blocking)
        if planned:
            log.info("Planned %d batches of %s; %d wait", len(planned), self.pipeline.name, waiting + len(planned))
        return waiting + len(planned)

    def execute(self, engine: Engine, *, rounds: bool, plan_on: bool = True) -> None:
        """Run waves until nothing is due or the time budget is over; see ``waves.py``.

        :param rounds: also wait for and run later rounds; otherwise they are left to a retry task
        :param plan_on: also plan what else the source holds, as batches get their verdict
        :raises CkptError: when the run halts or the sink as a whole fails; what was delivered is settled
        """
        from airflow_provider_ckpt.replication.waves import Waves

        Waves(self, engine, rounds=rounds, plan_on=plan_on).run()

    def settle(self) -> None:
        """Settle what has a receipt and was not reported."""
        self.reconcile()

    def planned(self) -> list[Batch]:
        """All planned batches, oldest first."""
        return self._in_state(BatchState.PLANNED)

    def next_due(self) -> datetime | None:
        """The earliest begin of the batches that wait for another round, None if none does."""
        waiting = [batch.not_before or utcnow() for batch in self.planned() if batch.round > 1]
        return min(waiting, default=None)

    @property
    def more(self) -> bool:
        """Whether the source may hold more than was planned."""
        return self._more

    def finish(self, *, release: bool = True) -> RunSummary:
        """Complete the summary, and release the lease unless a later task goes on with it."""
        records = self.ledger.partitions(self.pipeline.name)
        states: dict[str, int] = {}
        for name, record in records.items():
            marks = self.summary.checkpoint.setdefault(name, {"before": record.partition.committed, "after": 0})
            marks["after"] = record.partition.committed
            self.summary.lag[name] = max(self.bounds.get(name, record.partition.planned_end) - marks["after"], 0)
            self.summary.generation = record.partition.generation
            for batch in record.partition.blocking.values():
                states[batch.state.value] = states.get(batch.state.value, 0) + 1
        self.summary.batches_by_state = states
        self.summary.route = [
            str(leaf)
            for leaf in route(
                dead_lettered=self.summary.records.dead_lettered,
                waiting=sum(batch.round > 1 for batch in self.planned()),
                held=states.get(BatchState.HELD.value, 0),
            )
        ]
        self.summary.target_rows = self.sink.target_rows()
        self.summary.seconds = time.monotonic() - self._started
        if release:
            self.ledger.release(self.lease)
        return self.summary

    def mark_checkpoints(self) -> None:
        """Note where the checkpoint stands before anything is settled."""
        for name, record in self.ledger.partitions(self.pipeline.name).items():
            at = record.partition.committed
            self.summary.checkpoint.setdefault(name, {"before": at, "after": at})

    def close(self) -> None:
        """Stop renewing and let go of connections; the lease stays as it is."""
        if self._closed:
            return
        self._closed = True
        self._renewal.stop()
        self.source.close()
        self.sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is not None:
            self.ledger.release(self.lease)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count wall time towards a step of the summary."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.summary.spent(name, time.monotonic() - started)

    def _in_state(self, state: BatchState) -> list[Batch]:
        records = self.ledger.partitions(self.pipeline.name)
        found = [b for r in records.values() for b in r.partition.batches.values() if b.state is state]
        return sorted(found, key=lambda batch: batch.key)


class Opened:
    """The source and sink of a pipeline, open and checked."""

    def __init__(self, setup: Setup) -> None:
        pipeline = setup.pipeline
        self.source = registry.open_source(pipeline, setup.connection(pipeline.source.connection))
        self.sink = registry.open_sink(
            pipeline, setup.connection(pipeline.sink.connection), SinkContext(setup.ledger.id, pipeline.name)
        )

    def check(self) -> None:
        """Fail before anything is begun if either cannot work."""
        self.source.check()
        self.sink.check()

    def close(self) -> None:
        """Let go of connections."""
        self.source.close()
        self.sink.close()


def acquire(setup: Setup) -> Run:
    """Take the lease, fence the sink, reconcile with its receipts.

    :raises LeaseBusyError: if another run holds the lease and ``lease.on_busy`` or its wait says so
    :raises ConfigError: if the sink holds another ledger's receipts for the pipeline
    :raises SourceError: if the source cannot be reached or is not the one the ledger knows
    :raises SinkError: if the sink cannot be reached
    """
    opened = Opened(setup)
    try:
        opened.check()
        claims = opened.sink.claims()
        strangers = sorted(claims.ledgers - {setup.ledger.id})
        if strangers:
            raise ConfigError(
                f"the sink holds receipts of another ledger ({', '.join(strangers)}) for this pipeline; "
                f"this ledger is {setup.ledger.id}",
                pipeline=setup.pipeline.name,
                hint="Use that ledger, or give this pipeline another name or target.",
            )
        lease = _lease(setup, claims.epoch)
    except CkptError as error:
        opened.close()
        _name(error, setup)
        raise
    run = Run(setup, lease, opened)
    try:
        with run.step("fence"):
            run.sink.fence(lease.epoch)
        setup.ledger.declare(lease, setup.pipeline.document())
        _start(run)
        run.mark_checkpoints()
        run.reconcile()
    except BaseException as error:
        run.close()
        setup.ledger.release(lease)
        if isinstance(error, CkptError):
            _name(error, setup)
        raise
    return run


def attach(setup: Setup, epoch: int) -> Run:
    """Carry on the lease that an earlier task of the same DAG run acquired.

    If attempts of that epoch are still open, this task was started once before and died or lives on as a twin: then the
    lease is acquired anew, which fences that one. :attr:`Run.epoch` says which epoch it is.

    :raises StaleEpochError: if another run has taken over since
    """
    lease = setup.ledger.attach(setup.pipeline.name, epoch, setup.owner)
    partitions = setup.ledger.partitions(setup.pipeline.name).values()
    if any(batch.epoch == epoch for record in partitions for batch in record.partition.in_flight.values()):
        return acquire(setup)
    run = Run(setup, lease, Opened(setup))
    run.mark_checkpoints()
    return run


def replicate(setup: Setup, engine: Engine) -> RunSummary:
    """The whole run: acquire, plan, execute all rounds, settle, release.

    :returns: the summary
    :raises CkptError: when the run halts or fails; what was delivered is settled, and the lease is released
    """
    with acquire(setup) as run:
        if run.plan():
            run.execute(engine, rounds=True)
        return run.finish()


def utcnow() -> datetime:
    """The time, aware, UTC."""
    return datetime.now(UTC)


def _lease(setup: Setup, sink_epoch: int) -> Lease:
    """Wait for the lease, or fail, as the pipeline says."""
    terms = setup.pipeline.lease
    deadline = time.monotonic() + terms.wait.total_seconds()
    told = False
    while True:
        try:
            return setup.ledger.acquire(
                setup.pipeline.name, setup.owner, terms.ttl, at_least=sink_epoch, is_dead=owners.is_dead
            )
        except LeaseBusyError as error:
            if terms.on_busy == "fail" or time.monotonic() > deadline:
                raise
            if not told:
                log.info("Waiting for the lease: %s", error)
                told = True
            time.sleep(_LEASE_PAUSE)


def _start(run: Run) -> None:
    """Record the source's partitions; new ones start where the pipeline declares."""
    known = run.ledger.partitions(run.pipeline.name)
    start_from = run.pipeline.source.start_from
    bases = {
        partition: known[partition.id].partition.base
        if partition.id in known
        else run.source.start(partition.id, start_from)
        for partition in run.source.partitions()
    }
    run.ledger.start_partitions(run.lease, bases)


def _name(error: CkptError, setup: Setup) -> None:
    """Have an error say which pipeline it speaks of, if it did not."""
    error.pipeline = error.pipeline or setup.pipeline.name
