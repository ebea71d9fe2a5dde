"""The ledger's face: opens an existing one; every command is one transaction, every read one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from airflow_provider_ckpt.core.acts import BEHIND_FENCE, Act
from airflow_provider_ckpt.core.batch import Batch, BatchKey, Receipt
from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.core.lease import TAKEOVERS, nobody_is_dead
from airflow_provider_ckpt.core.receipts import RangeReceipt
from airflow_provider_ckpt.core.recovery import Missing, Shown, missing
from airflow_provider_ckpt.ledger import (
    acting,
    bulk,
    history,
    inspecting,
    migrate,
    planning,
    reads,
    reconciling,
    retention,
    settling,
    tables,
    trail,
)
from airflow_provider_ckpt.ledger import audit as audits
from airflow_provider_ckpt.ledger import engine as engines
from airflow_provider_ckpt.ledger import lease as leases
from airflow_provider_ckpt.ledger import receipts as ranges
from airflow_provider_ckpt.ledger.records import (
    ActResult,
    Intent,
    Lease,
    PartitionRecord,
    Reconciliation,
    Settlement,
)
from airflow_provider_ckpt.ledger.subscription import Subscription
from airflow_provider_ckpt.ledger.work import Touch, Work

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import Plan, SourceFile, SourcePartition
    from airflow_provider_ckpt.core.policy import Policy
    from airflow_provider_ckpt.core.ranges import Range
    from airflow_provider_ckpt.core.wave import Outcome

_ACT_TTL = timedelta(seconds=60)
"""An act is one transaction, which gives the lease back at its end."""


class Ledger:
    """One ledger database; see :meth:`open`.

    Every command takes a lease, locks its row and checks the epoch under that lock: it raises
    :class:`StaleEpochError` once a newer epoch was granted, and stores nothing. Any trouble with the database is a
    :class:`LedgerUnavailableError`.
    """

    def __init__(self, engine: sa.Engine, place: str, ledger_id: str) -> None:
        self.id = ledger_id
        self._engine = engine
        self._place = place

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open a ledger that exists.

        :param url: ``postgresql://…`` or ``sqlite:///path``
        :raises LedgerUnavailableError: if there is none, it is at another revision, or it cannot be reached
        :raises ConfigError: if the address is not one of a ledger
        """
        parsed = engines.parse(url)
        place = engines.describe(parsed)
        migrate.require_file(parsed)
        engine = engines.create(parsed)
        try:
            with engines.reading(engine, place) as connection:
                migrate.require_head(connection, place)
                ledger_id: str = connection.execute(sa.select(tables.ledger.c.id)).scalar_one()
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, place, ledger_id)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with engines.writing(self._engine, self._place) as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with engines.reading(self._engine, self._place) as connection:
            yield connection

    @contextmanager
    def _command(self, lease: Lease, now: datetime | None = None, touch: Touch = None) -> Iterator[Work]:
        with self._writing() as connection:
            yield Work(connection, lease, now or datetime.now(UTC), touch)

    # Lease

    def acquire(
        self,
        pipeline: str,
        owner: str,
        ttl: timedelta,
        *,
        at_least: int = 0,
        is_dead: Callable[[str], bool] = nobody_is_dead,
        force: bool = False,
    ) -> Lease:
        """Take the pipeline's lease under a new epoch, if it is free, expired, our own, or a dead owner's.

        :param ttl: not renewed for this long, it may be taken over
        :param at_least: the new epoch is greater than this too: the sink's fence
        :param is_dead: knows whether an owner is certainly gone
        :param force: take it from whoever holds it (a person's force stop)
        :raises LeaseBusyError: if another owner holds it; says who and until when
        """
        with self._writing() as connection:
            lease, held, why = leases.acquire(connection, pipeline, owner, ttl, at_least, is_dead, force=force)
            kind = "lease_taken_over" if why in TAKEOVERS else "lease_acquired"
            detail = {"before": {"owner": held.owner, "epoch": held.epoch}, "why": why.value}
            bulk.insert(connection, tables.event, [trail.row(lease, leases.now(connection), kind, detail)])
        return lease

    def renew(self, lease: Lease) -> None:
        """Hold the lease for another ``ttl`` from now.

        :raises StaleEpochError: if a newer epoch was granted, or it was released
        """
        with self._writing() as connection:
            leases.renew(connection, lease.pipeline, lease.epoch, lease.owner)

    def release(self, lease: Lease) -> None:
        """Give the lease back; a second time, or after a takeover, nothing happens."""
        with self._writing() as connection:
            if leases.release(connection, lease):
                moment = leases.now(connection)
                bulk.insert(connection, tables.event, [trail.row(lease, moment, "lease_released", {})])

    def attach(self, pipeline: str, epoch: int, owner: str) -> Lease:
        """Carry on the lease that another process of the same run acquired, and renew it.

        :raises StaleEpochError: if the epoch is not the current one, or not this owner's
        """
        with self._writing() as connection:
            return leases.renew(connection, pipeline, epoch, owner)

    # Commands

    def declare(self, lease: Lease, document: Mapping[str, Any]) -> None:
        """Store the pipeline's declaration, JSON-ready and free of secrets."""
        with self._command(lease, touch=()) as work:
            planning.declare(work, document)

    def start_partitions(
        self, lease: Lease, partitions: Mapping[SourcePartition, int], *, now: datetime | None = None
    ) -> None:
        """Start new partitions at their declared first position; known ones stay as they are.

        :raises SourceError: if a known partition is another thing now than the one it was started on
        """
        with self._command(lease, now, ()) as work:
            planning.start_partitions(work, partitions)

    def plan(self, lease: Lease, plan: Plan, *, now: datetime | None = None) -> list[Batch]:
        """Record what planning found: batches, files, bounds and states; all of it or nothing.

        :returns: the new batches
        :raises LedgerStateError: while draining or stopped, or if a range does not continue its partition
        """
        names = {batch.partition for batch in plan.batches} | set(plan.bounds) | set(plan.states)
        touch: Touch = dict.fromkeys(names, ())
        with self._command(lease, now, touch) as work:
            return planning.plan(work, plan)

    def begin(
        self, lease: Lease, keys: Sequence[BatchKey], *, now: datetime, run: str, at_most_once: bool = False
    ) -> list[Batch]:
        """Open an attempt of each batch, or of none.

        :param run: names the run in the attempts' records
        :param at_most_once: resolve the batches as ``sent`` at once
        :raises LedgerStateError: if a batch is not planned, is due later, or the pipeline is draining or stopped
        """
        with self._command(lease, now, _numbers(keys)) as work:
            return planning.begin(work, keys, run=run, at_most_once=at_most_once)

    def reconcile(
        self, lease: Lease, receipts: Iterable[Receipt], *, now: datetime, window: timedelta | None = None
    ) -> Reconciliation:
        """Make the ledger agree with the sink's receipts, then fence what older epochs left open.

        :param receipts: read after the sink was fenced; all of them are read before the transaction begins
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        :raises LedgerStateError: if they speak of a partition or generation that the ledger does not know
        """
        found = list(receipts)
        with self._command(lease, now) as work:
            result = reconciling.reconcile(work, found)
            settling.follow(work, window)
            return result

    def settle(
        self,
        lease: Lease,
        outcomes: Sequence[Outcome],
        *,
        now: datetime,
        policy: Policy,
        unit: Callable[[], float],
        window: timedelta | None = None,
    ) -> Settlement:
        """End the attempts that a wave reports, and move the checkpoint.

        :param unit: gives a random number in [-1, 1] for each retry's jitter
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        """
        with self._command(lease, now, _numbers(outcome.key for outcome in outcomes)) as work:
            return settling.settle(work, outcomes, policy=policy, unit=unit, window=window)

    def lost(
        self,
        lease: Lease,
        lanes: Sequence[Sequence[BatchKey]],
        receipts: Iterable[Receipt],
        *,
        now: datetime,
        alone: bool,
        limit: int,
        window: timedelta | None = None,
    ) -> Settlement:
        """Account for a wave that Spark did not live to report.

        :param lanes: what the wave held, each lane in order
        :param receipts: read from the sink after the loss
        :param alone: whether the wave was one batch running alone
        :param limit: at so many deaths the batch is held
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        """
        found = list(receipts)
        touch = {key.partition for lane in lanes for key in lane} | {receipt.key.partition for receipt in found}
        with self._command(lease, now, touch) as work:
            return settling.lost(work, lanes, found, alone=alone, limit=limit, window=window)

    def cancel(self, lease: Lease, *, now: datetime) -> list[BatchKey]:
        """Cancel every open attempt of this lease."""
        with self._command(lease, now) as work:
            return settling.cancel(work)

    # People's acts

    def act(
        self,
        pipeline: str,
        act: Act,
        *,
        who: str,
        why: str | None = None,
        is_dead: Callable[[str], bool] = nobody_is_dead,
        dry_run: bool = False,
    ) -> ActResult:
        """Carry out a person's act at once if nobody holds the lease, after those that wait; else store it as well.

        Rewind and force stop need the sink's fence, so they are always stored; the next run, or the command that
        acquires for them, applies them with :meth:`apply_intents`.

        :param who: the person
        :param why: the reason; kept in the audit trail
        :param is_dead: knows whether the lease's owner is certainly gone
        :param dry_run: say what would be before and after, whoever holds the lease, and store nothing
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the act does not fit; nothing is changed then
        """
        with self._writing() as connection:
            reads.known(connection, pipeline)
            if dry_run:
                lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=True)
                result = acting.apply(Work(connection, lease, datetime.now(UTC)), act, who=who, why=why)
                connection.rollback()
                return replace(result, applied=False)
            if act.kind in BEHIND_FENCE:
                return ActResult(act, False, acting.keep(connection, pipeline, act, who, why, datetime.now(UTC)))
            try:
                lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=False)
            except LeaseBusyError:
                return ActResult(act, False, acting.keep(connection, pipeline, act, who, why, datetime.now(UTC)))
            work = Work(connection, lease, datetime.now(UTC))
            acting.apply_waiting(work, keep_refused=True)
            result = acting.apply(work, act, who=who, why=why)
            leases.release(connection, lease)
            return result

    def act_under(self, lease: Lease, act: Act, *, who: str, why: str | None = None) -> ActResult:
        """Carry out a person's act under a lease that has fenced the sink and reconciled.

        :raises LedgerStateError: if the act does not fit; nothing is changed then
        """
        with self._command(lease) as work:
            return acting.apply(work, act, who=who, why=why)

    def apply_intents(self, lease: Lease, *, now: datetime, behind_fence: bool = False) -> list[ActResult]:
        """Apply what people stored while the lease was held.

        :param behind_fence: whether the sink was fenced and reconciled under this epoch just now
        """
        with self._command(lease, now) as work:
            return acting.apply_waiting(work, behind_fence=behind_fence)

    def break_lease(self, pipeline: str, *, who: str, why: str) -> Lease:
        """Take the lease from whoever holds it and give it back free: the holder is refused from then on.

        What it left in flight waits for the next run, which fences and reconciles.

        :returns: the lease under the epoch that broke it
        """
        with self._writing() as connection:
            reads.known(connection, pipeline)
            lease, held, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, nobody_is_dead, force=True)
            leases.release(connection, lease)
            detail = {"before": {"owner": held.owner, "epoch": held.epoch}, "reason": why}
            moment = leases.now(connection)
            bulk.insert(connection, tables.event, [trail.row(lease, moment, "lease_broken", detail)])
        return lease

    def adopt(self, lease: Lease, ledger_id: str, *, who: str, why: str) -> None:
        """Go on under another ledger's receipts in the sink: from now on they are this pipeline's own.

        :param ledger_id: the id under which the sink holds them
        """
        with self._command(lease, touch=()) as work:
            c = tables.pipeline.c
            here = c.name == lease.pipeline
            before = work.connection.execute(sa.select(c.adopted).where(here)).scalar_one()
            work.connection.execute(tables.pipeline.update().where(here).values(adopted=ledger_id))
            detail = {"before": before or self.id, "after": ledger_id, "reason": why}
            row = trail.row(work.lease, work.now, "adopted", detail) | {"who": who}
            bulk.insert(work.connection, tables.event, [row])

    def sink_id(self, pipeline: str) -> str:
        """The id under which the sink keeps this pipeline's receipts: the ledger's own, or one that was adopted."""
        with self._reading() as connection:
            c = tables.pipeline.c
            return connection.execute(sa.select(c.adopted).where(c.name == pipeline)).scalar_one_or_none() or self.id

    def forget(self, pipeline: str, *, who: str, why: str, is_dead: Callable[[str], bool] = nobody_is_dead) -> None:
        """Delete all that the ledger knows of a pipeline, but for its audit trail; the sink is left as it is.

        The lease row stays as well, so that epochs go on growing if the name is used again.

        :raises LeaseBusyError: while a run holds the lease
        """
        with self._writing() as connection:
            reads.known(connection, pipeline)
            lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=False)
            for table in tables.metadata.sorted_tables:
                if "pipeline" in table.c and table not in (tables.event, tables.lease):
                    connection.execute(table.delete().where(table.c.pipeline == pipeline))
            connection.execute(tables.pipeline.delete().where(tables.pipeline.c.name == pipeline))
            leases.release(connection, lease)
            moment = leases.now(connection)
            bulk.insert(connection, tables.event, [trail.row(lease, moment, "forgotten", {"reason": why})])

    def collect(
        self,
        pipeline: str,
        *,
        keep: timedelta,
        who: str,
        why: str | None = None,
        now: datetime | None = None,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Delete what is older than ``keep`` and needed no more, beside a run if there is one; see ``retention.py``.

        :param who: the person
        :param dry_run: only count
        :returns: rows by what they are
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        return retention.Collection(self._writing, pipeline, keep, moment, dry=dry_run).run(who=who, why=why)

    def intents(self, pipeline: str) -> list[Intent]:
        """What people stored and nobody has applied yet, oldest first."""
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return acting.waiting(connection, pipeline)

    # Reads

    def partitions(self, pipeline: str) -> dict[str, PartitionRecord]:
        """Every partition by id, with the batches beyond its checkpoint; empty for a pipeline that never ran."""
        with self._reading() as connection:
            return {name: item.record for name, item in reads.partitions(connection, pipeline).items()}

    def files(self, pipeline: str, ranges: Sequence[Range] | None = None) -> list[SourceFile]:
        """Discovered files by ordinal, all or those that overlap one of the ranges."""
        with self._reading() as connection:
            return reads.files(connection, pipeline, ranges)

    def receipts(self, pipeline: str) -> list[RangeReceipt]:
        """What the checkpoint has passed, by generation, partition and position."""
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return ranges.load(connection, pipeline)

    def events(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """The newest events of the audit trail, oldest of them first, JSON-ready."""
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return reads.events(connection, pipeline, limit)

    def positions_at(self, pipeline: str, at: datetime) -> dict[str, int]:
        """Where the checkpoint of each source partition stood at some time, and never later than that; for a rewind.

        :param at: aware
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return history.positions_at(connection, pipeline, at)

    def recovery_plan(
        self,
        pipeline: str,
        *,
        settle_lag: timedelta,
        now: datetime | None = None,
        window: timedelta | None = None,
        shown: Shown | None = None,
    ) -> list[Missing]:
        """What is above the low watermarks and unaccounted for, each position once; see ``core/recovery.py``.

        :param settle_lag: leave out what is younger
        :param window: where the low watermark would stand by now; where it was stored if None
        :param shown: asks the source how many records it shows in some ranges of a partition, after the read has ended
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        with self._reading() as connection:
            known = reads.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
        return missing(known, before=moment - settle_lag, shown=shown)

    def subscribe(
        self,
        pipeline: str,
        after: int | None = None,
        *,
        settle_lag: timedelta = timedelta(0),
        now: datetime | None = None,
        window: timedelta | None = None,
        shown: Shown | None = None,
    ) -> Subscription:
        """What is missing now, then everything new, without a gap or a double; see ``subscription.py``.

        :param after: go on after this event instead, as :attr:`Subscription.after` gave it
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        found: list[Missing] = []
        if after is None:
            with self._reading() as connection:
                known = reads.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
                after = reads.last_event(connection, pipeline)
            found = missing(known, before=moment - settle_lag, shown=shown)
        return Subscription(self._reading, pipeline, found, after)

    def audit(self, pipeline: str, *, quick: bool = False) -> dict[str, Any]:
        """Check every named invariant and account for every position; JSON-ready, see ``audit.py``.

        :param quick: leave out what only the whole history can show
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audits.audit(connection, pipeline, quick=quick)

    def inspect(self, pipeline: str, what: BatchKey | str | None = None) -> dict[str, Any]:
        """A batch, a partition by its id, or everything that is not resolved; JSON-ready, see ``inspecting.py``.

        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if it does not know the batch or partition
        """
        with self._reading() as connection:
            return inspecting.inspect(connection, pipeline, what)

    def pipelines(self) -> list[str]:
        """The names of all pipelines."""
        with self._reading() as connection:
            return reads.pipelines(connection)

    def status(self, pipeline: str) -> dict[str, Any]:
        """All that a person wants to see of a pipeline, JSON-ready.

        :raises ConfigError: if the ledger does not know it; names the nearest known ones
        """
        with self._reading() as connection:
            return reads.status(connection, self.id, pipeline)


def _numbers(keys: Iterable[BatchKey]) -> dict[str, list[int]]:
    """The batches that a command is about, by partition."""
    numbers: dict[str, list[int]] = {}
    for key in keys:
        numbers.setdefault(key.partition, []).append(key.seq)
    return numbers
