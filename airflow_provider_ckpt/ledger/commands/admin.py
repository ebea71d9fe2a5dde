"""Commands for users: carry out actions, break a lease, adopt receipts, delete and garbage-collect a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink
from airflow_provider_ckpt.core.actions import BEHIND_FENCE, BY_A_RUN, NEED_A_REASON, OF_THE_SINK, Act, require_reason
from airflow_provider_ckpt.core.batch import Receipt
from airflow_provider_ckpt.core.dead_letters import Forgotten
from airflow_provider_ckpt.core.errors import LeaseBusyError, LedgerStateError
from airflow_provider_ckpt.core.lease import nobody_is_dead
from airflow_provider_ckpt.ledger.commands import actions, proposals, reconcile, retention, sink_state
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as leases
from airflow_provider_ckpt.ledger.types import ActResult, Intent, Lease
from airflow_provider_ckpt.ledger.unit_of_work import Work

_ACT_TTL = timedelta(seconds=60)
"""TTL of an action's lease; an action is one transaction, which releases the lease at its end."""


class PeopleCommands(Session):
    """Commands for users; each leaves an event with actor and reason."""

    def act(
        self,
        pipeline: str,
        act: Act,
        *,
        who: str,
        why: str | None = None,
        is_dead: Callable[[str], bool] = nobody_is_dead,
        dry_run: bool = False,
        receipts: Iterable[Receipt] = (),
        proposal: str | None = None,
    ) -> ActResult:
        """Carry out an action at once, after the stored ones, if no one holds the lease; else store it.

        Actions that need the sink's fence or its receipts, which are all of
        :data:`~airflow_provider_ckpt.core.actions.BY_A_RUN`, are always stored; a run applies them by
        :meth:`apply_intents`.

        :param pipeline: name of the pipeline
        :param act: the action
        :param who: the actor
        :param why: the actor's reason, which the audit log stores
        :param is_dead: returns whether the lease's owner is certainly gone
        :param dry_run: return the state before and after, whoever holds the lease, and store nothing
        :param receipts: the sink's receipts, with which a dry run reconciles first
        :param proposal: id of the approved proposal that is used up in the same transaction
        :raises ConfigError: if the ledger does not know the pipeline, or actor or a required reason is missing
        :raises LedgerStateError: if the action or the proposal does not fit; nothing is changed then
        """
        with self._writing() as connection:
            status.known(connection, pipeline)
            require_reason(act.kind, who, why, reason=act.kind in NEED_A_REASON and not dry_run)
            if dry_run:
                lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=True)
                if found := list(receipts):
                    reconcile.reconcile(Work(connection, lease, datetime.now(UTC)), found, Forgotten())
                result = actions.apply(Work(connection, lease, datetime.now(UTC)), act, who=who, why=why)
                connection.rollback()
                return replace(result, applied=False)
            if act.kind in OF_THE_SINK:
                raise LedgerStateError(
                    f"{act.kind.value.replace('_', ' ')} is not carried out by the ledger alone: it fences the sink "
                    "and reads its receipts first.",
                    pipeline=pipeline,
                    hint=f"Use `airflow ckpt {act.kind.value.replace('_', '-')}`, or the recovery DAG.",
                )
            result = self._applied_or_stored(connection, pipeline, act, who, why, is_dead)
            if proposal is not None:
                _use(connection, proposal, act, result, pipeline, who)
            return result

    def _applied_or_stored(
        self,
        connection: Connection,
        pipeline: str,
        act: Act,
        who: str,
        why: str | None,
        is_dead: Callable[[str], bool],
    ) -> ActResult:
        if act.kind in BY_A_RUN:
            return ActResult(act, False, actions.keep(connection, pipeline, act, who, why, datetime.now(UTC)))
        try:
            lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=False)
        except LeaseBusyError:
            return ActResult(act, False, actions.keep(connection, pipeline, act, who, why, datetime.now(UTC)))
        work = Work(connection, lease, datetime.now(UTC))
        actions.apply_waiting(work, leave=BY_A_RUN, keep_refused=True)
        result = actions.apply(work, act, who=who, why=why)
        leases.release(connection, lease)
        return result

    def act_under(
        self,
        lease: Lease,
        act: Act,
        *,
        who: str,
        why: str | None = None,
        proposal: str | None = None,
        accepted: AcceptedSink | None = None,
    ) -> ActResult:
        """Carry out an action under a lease whose holder has fenced the sink and reconciled.

        :param lease: the lease
        :param act: the act
        :param who: the person
        :param why: the reason; kept in the audit trail
        :param proposal: id of the approved proposal that this uses up, in the same transaction
        :param accepted: for an act on the sink, the losses that it accepts
        :raises ConfigError: if the actor, or a reason that the act needs, is missing
        :raises LedgerStateError: if the act does not fit, or the proposal; nothing is changed then
        """
        require_reason(act.kind, who, why, reason=act.kind in NEED_A_REASON)
        with self._command(lease) as work:
            result = actions.apply(work, act, who=who, why=why)
            if accepted is not None:
                sink_state.note_accepted(work, accepted, who)
            if proposal is not None:
                _use(work.connection, proposal, act, result, lease.pipeline, who)
            return result

    def apply_intents(self, lease: Lease, *, now: datetime, behind_fence: bool = False) -> list[ActResult]:
        """Apply the actions that were stored while the lease was held; return their results.

        :param lease: the lease
        :param now: time of the command
        :param behind_fence: whether the sink has just been fenced and reconciled under this epoch
        """
        with self._command(lease, now) as work:
            return actions.apply_waiting(work, leave=frozenset() if behind_fence else BEHIND_FENCE)

    def break_lease(self, pipeline: str, *, who: str, why: str) -> Lease:
        """Take the lease from its holder and release it; the holder's commands are refused from then on.

        Attempts that the holder left in flight wait for the next run, which fences and reconciles.

        :param pipeline: name of the pipeline
        :param who: the actor
        :param why: the actor's reason
        :returns: the lease under the epoch that broke it
        :raises ConfigError: if actor or reason is missing, or the ledger does not know the pipeline
        """
        require_reason("break lease", who, why, reason=True)
        with self._writing() as connection:
            status.known(connection, pipeline)
            lease, held, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, nobody_is_dead, force=True)
            leases.release(connection, lease)
            detail = {"before": {"owner": held.owner, "epoch": held.epoch}, "reason": why}
            moment = leases.now(connection)
            bulk_sql.insert(connection, tables.event, [events.row(lease, moment, "lease_broken", detail)])
        return lease

    def adopt(self, lease: Lease, ledger_id: str, *, who: str, why: str) -> None:
        """Take over another ledger's receipts in the sink: from now on they are this pipeline's own.

        :param lease: the lease
        :param ledger_id: id of the ledger under which the sink stores them
        :param who: the actor
        :param why: the actor's reason
        :raises ConfigError: if actor or reason is missing
        """
        require_reason("adopt", who, why, reason=True)
        with self._command(lease, touch=()) as work:
            c = tables.pipeline.c
            here = c.name == lease.pipeline
            before = work.connection.execute(sa.select(c.adopted).where(here)).scalar_one()
            work.connection.execute(tables.pipeline.update().where(here).values(adopted=ledger_id))
            sink_state.forget(work.connection, lease.pipeline)
            detail = {"before": before or self.id, "after": ledger_id, "reason": why}
            row = events.row(work.lease, work.now, "adopted", detail) | {"who": who}
            bulk_sql.insert(work.connection, tables.event, [row])

    def sink_id(self, pipeline: str) -> str:
        """Return the ledger id of this pipeline's receipts in the sink: this ledger's own id, or an adopted one."""
        with self._reading() as connection:
            c = tables.pipeline.c
            return connection.execute(sa.select(c.adopted).where(c.name == pipeline)).scalar_one_or_none() or self.id

    def forget(self, pipeline: str, *, who: str, why: str, is_dead: Callable[[str], bool] = nobody_is_dead) -> None:
        """Delete everything that the ledger knows of a pipeline except its audit log; the sink is not changed.

        The lease row stays too, so that epochs continue to grow if the name is used again.

        :param pipeline: name of the pipeline
        :param who: the actor
        :param why: the actor's reason
        :param is_dead: returns whether the lease's owner is certainly gone
        :raises LeaseBusyError: while a run holds the lease
        :raises ConfigError: if actor or reason is missing, or the ledger does not know the pipeline
        """
        require_reason("delete", who, why, reason=True)
        with self._writing() as connection:
            status.known(connection, pipeline)
            lease, _, _ = leases.acquire(connection, pipeline, who, _ACT_TTL, 0, is_dead, force=False)
            for table in tables.metadata.sorted_tables:
                if "pipeline" in table.c and table not in (tables.event, tables.lease):
                    connection.execute(table.delete().where(table.c.pipeline == pipeline))
            connection.execute(tables.pipeline.delete().where(tables.pipeline.c.name == pipeline))
            leases.release(connection, lease)
            moment = leases.now(connection)
            bulk_sql.insert(connection, tables.event, [events.row(lease, moment, "forgotten", {"reason": why})])

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
        """Delete rows that are older than ``keep`` and no longer needed, also during a run; see ``retention.py``.

        :param pipeline: name of the pipeline
        :param keep: age from which rows may be deleted
        :param who: the actor
        :param why: the actor's reason, if it was given
        :param now: time at which the age is taken; the current time if None
        :param dry_run: only count
        :returns: number of deleted or merged rows, by what they hold
        :raises ConfigError: if the ledger does not know the pipeline
        """
        require_reason("collect", who, why, reason=False)
        moment = now or datetime.now(UTC)
        return retention.Collection(self._writing, pipeline, keep, moment, dry=dry_run).run(who=who, why=why)

    def intents(self, pipeline: str) -> list[Intent]:
        """Return the stored actions that have not been applied yet, oldest first."""
        with self._reading() as connection:
            status.known(connection, pipeline)
            return actions.waiting(connection, pipeline)


def _use(connection: Connection, proposal: str, act: Act, result: ActResult, pipeline: str, who: str) -> None:
    """Use a proposal up, and record which approval the action is based on."""
    detail = proposals.use(connection, proposal, act, result, pipeline=pipeline, who=who)
    held = leases.lock(connection, pipeline)
    moment = leases.now(connection)
    author = Lease(pipeline, who, held.epoch if held else 0, timedelta(0), moment)
    bulk_sql.insert(connection, tables.event, [events.row(author, moment, "approved", detail)])
