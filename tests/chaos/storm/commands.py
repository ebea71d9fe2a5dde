"""Commands to the ledger. Each writes two lines to the journal: its arguments, and its result in the judge's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_ckpt.connectors.source_plan import Plan, SourcePartition
from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.lease import never_dead
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.types import ActionResult, Lease, PartitionRecord, Reconciliation, Settlement
from tests.chaos.storm.journal import LOOK, Answer, Expect, Journal, T

Json = Mapping[str, Any]


class Commands:
    """The commands that one process sends to the ledger.

    :param ledger: opened by this process
    :param journal: gets two lines a command
    """

    def __init__(self, ledger: Ledger, journal: Journal) -> None:
        self.ledger = ledger
        self.journal = journal

    # Lease

    def acquire(
        self,
        pipeline: str,
        owner: str,
        ttl: timedelta,
        *,
        at_least: int,
        is_dead: Callable[[str], bool] = never_dead,
        force: bool = False,
    ) -> Answer[Lease]:
        """See :meth:`Ledger.acquire`."""
        return self.journal.call(
            "acquire",
            lambda: self.ledger.acquire(pipeline, owner, ttl, at_least=at_least, is_dead=is_dead, force=force),
            lambda lease: {"epoch": lease.epoch},
            pipeline=pipeline,
            owner=owner,
            force=force,
        )

    def renew(self, lease: Lease, expect: Expect = Expect.VALID) -> Answer[None]:
        """See :meth:`Ledger.renew`."""
        return self._under("renew", lease, lambda: self.ledger.renew(lease), _nothing, expect)

    def attach(self, lease: Lease, expect: Expect = Expect.VALID) -> Answer[Lease]:
        """Attach to a lease by its pipeline, epoch and owner; see :meth:`Ledger.attach`."""
        act = lambda: self.ledger.attach(lease.pipeline, lease.epoch, lease.owner)  # noqa: E731
        return self._under("attach", lease, act, _nothing, expect)

    def release(self, lease: Lease) -> Answer[None]:
        """See :meth:`Ledger.release`."""
        return self._under("release", lease, lambda: self.ledger.release(lease), _nothing, Expect.VALID)

    def break_lease(self, pipeline: str, actor: str) -> Answer[Lease]:
        """See :meth:`Ledger.break_lease`; it is refused if nobody holds the lease any more."""
        tag = self.journal.next_tag
        return self.journal.call(
            "break_lease",
            lambda: self.ledger.break_lease(pipeline, actor=actor, reason=tag),
            lambda lease: {"epoch": lease.epoch},
            pipeline=pipeline,
            owner=actor,
            expect=Expect.ANY,
        )

    # A run's commands

    def declare(self, lease: Lease, expect: Expect = Expect.VALID) -> Answer[None]:
        """Declare a document that no other command declares."""
        document = {"storm": self.journal.next_tag}
        return self._under("declare", lease, lambda: self.ledger.declare(lease, document), _nothing, expect)

    def start(self, lease: Lease, names: Sequence[str], expect: Expect = Expect.VALID) -> Answer[None]:
        """Start partitions at 0."""
        partitions = {SourcePartition(name, f"thing of {name}"): 0 for name in names}

        def act() -> None:
            self.ledger.start_partitions(lease, partitions)

        return self._under("start", lease, act, _nothing, expect, names=list(names))

    def plan(
        self, lease: Lease, plan: Plan, generations: Mapping[str, int], expect: Expect = Expect.VALID
    ) -> Answer[list[Batch]]:
        """See :meth:`Ledger.plan`.

        :param generations: each partition's, so that the oracle knows where the batches went if no answer comes
        """
        ranges = [[item.partition, item.range.start, item.range.end] for item in plan.batches]
        return self._under(
            "plan",
            lease,
            lambda: self.ledger.plan(lease, plan),
            lambda batches: {"keys": [batch.key.to_json() for batch in batches]},
            expect,
            ranges=ranges,
            generations=dict(generations),
        )

    def begin(
        self,
        lease: Lease,
        keys: Sequence[BatchKey],
        *,
        now: datetime,
        at_most_once: bool,
        expect: Expect = Expect.VALID,
    ) -> Answer[list[Batch]]:
        """See :meth:`Ledger.begin`; the run is named after the command."""
        run = self.journal.next_tag
        return self._under(
            "begin",
            lease,
            lambda: self.ledger.begin(lease, keys, now=now, run=run, at_most_once=at_most_once),
            lambda batches: {"attempts": [[batch.key.to_json(), batch.attempts] for batch in batches]},
            expect,
            keys=_keys(keys),
            at_most_once=at_most_once,
        )

    def reconcile(
        self,
        lease: Lease,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        window: timedelta | None = None,
        expect: Expect = Expect.VALID,
    ) -> Answer[Reconciliation]:
        """See :meth:`Ledger.reconcile`."""
        return self._under(
            "reconcile",
            lease,
            lambda: self.ledger.reconcile(lease, receipts, now=now, window=window),
            lambda done: {
                "acked": _keys(receipt.key for receipt in done.acked),
                "imported": _keys(receipt.key for receipt in done.imported),
                "fenced": len(done.fenced),
                "counts": done.counts.to_json(),
            },
            expect,
            receipts=len(receipts),
        )

    def settle(
        self,
        lease: Lease,
        outcomes: Sequence[Outcome],
        *,
        now: datetime,
        policy: DeliveryPolicy,
        unit: Callable[[], float],
        window: timedelta | None = None,
        expect: Expect = Expect.VALID,
    ) -> Answer[Settlement]:
        """See :meth:`Ledger.settle`."""
        return self._under(
            "settle",
            lease,
            lambda: self.ledger.settle(lease, outcomes, now=now, policy=policy, deviation=unit, window=window),
            _settled,
            expect,
            outcomes=[[item.key.to_json(), item.attempt, item.outcome] for item in outcomes],
        )

    def lost(
        self,
        lease: Lease,
        lanes: Sequence[Sequence[BatchKey]],
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        limit: int,
        window: timedelta | None = None,
        expect: Expect = Expect.VALID,
    ) -> Answer[Settlement]:
        """See :meth:`Ledger.lost`."""
        alone = sum(map(len, lanes)) == 1
        return self._under(
            "lost",
            lease,
            lambda: self.ledger.settle_lost_wave(
                lease, lanes, receipts, now=now, alone=alone, limit=limit, window=window
            ),
            _settled,
            expect,
            lanes=[_keys(lane) for lane in lanes],
            receipts=len(receipts),
        )

    def cancel(self, lease: Lease, *, now: datetime, expect: Expect = Expect.VALID) -> Answer[list[BatchKey]]:
        """See :meth:`Ledger.cancel`."""
        act = lambda: self.ledger.cancel(lease, now=now)  # noqa: E731
        return self._under("cancel", lease, act, lambda keys: {"keys": _keys(keys)}, expect)

    # People's acts

    def act(
        self, pipeline: str, act: Action, *, actor: str, is_dead: Callable[[str], bool], dry_run: bool
    ) -> Answer[ActionResult]:
        """See :meth:`Ledger.act`."""
        tag = self.journal.next_tag
        return self.journal.call(
            "act",
            lambda: self.ledger.action(pipeline, act, actor=actor, reason=tag, is_dead=is_dead, dry_run=dry_run),
            lambda done: {"applied": done.applied, "intent": done.intent},
            pipeline=pipeline,
            owner=actor,
            expect=Expect.ANY,
            act=act.to_json(),
            dry_run=dry_run,
        )

    def act_under_lease(self, lease: Lease, act: Action, expect: Expect = Expect.ANY) -> Answer[ActionResult]:
        """See :meth:`Ledger.act_under_lease`."""
        tag = self.journal.next_tag
        return self._under(
            "act_under",
            lease,
            lambda: self.ledger.act_under_lease(lease, act, actor="person under a lease", reason=tag),
            lambda done: {"applied": done.applied},
            expect,
            act=act.to_json(),
        )

    def apply_stored_actions(
        self, lease: Lease, *, now: datetime, behind_fence: bool, expect: Expect = Expect.VALID
    ) -> Answer[list[ActionResult]]:
        """See :meth:`Ledger.apply_stored_actions`."""
        return self._under(
            "apply_intents",
            lease,
            lambda: self.ledger.apply_stored_actions(lease, now=now, behind_fence=behind_fence),
            lambda results: {"applied": [result.applied for result in results]},
            expect,
            behind_fence=behind_fence,
        )

    # Reads

    def look(self, pipeline: str) -> Answer[dict[str, PartitionRecord]]:
        """Read the partitions from the ledger; the judge compares later reads with this one."""
        return self.journal.call(LOOK, lambda: self.ledger.partitions(pipeline), _seen, pipeline=pipeline)

    def _under(
        self,
        do: str,
        lease: Lease,
        action: Callable[[], T],
        result: Callable[[T], Json],
        expect: Expect,
        **facts: Any,
    ) -> Answer[T]:
        named = {"pipeline": lease.pipeline, "epoch": lease.epoch, "owner": lease.owner}
        return self.journal.call(do, action, result, **named, expect=expect, **facts)  # type: ignore[arg-type]


def _nothing(_: object) -> Json:
    return {}


def _keys(keys: Any) -> list[list[Any]]:
    return [key.to_json() for key in keys]


def _settled(done: Settlement) -> Json:
    counts = [receipt.counts.to_json() for receipt in done.acked]
    names = ("read", "delivered", "filtered", "dead_lettered")
    return {
        "acked": _keys(receipt.key for receipt in done.acked),
        "counts": {name: sum(item[name] for item in counts) for name in names},
        "checkpoint": done.checkpoint,
    }


def _seen(records: Mapping[str, PartitionRecord]) -> Json:
    parts = [record.partition for record in records.values()]
    return {part.id: [part.generation, part.committed, sorted(part.blocking)] for part in parts}
