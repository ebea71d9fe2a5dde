"""Collect garbage: delete rows of the ledger that are no longer needed; receipts in the sink are not touched.

``airflow ckpt gc`` uses this module, also while the pipeline runs. Rows are deleted in small portions. A portion is one
transaction, which locks the pipeline's lease row like any command, without acquiring the lease. These rows are always
kept: rows younger than ``keep``, with the exceptions below; the receipts of the current generations; side partitions
whose range the low watermark has not passed; the newest event, and events with accepted losses of the sink; the dead
letter index; and source files, which would be discovered as new ones if their rows were missing.

Three kinds of rows may be deleted although they are younger than ``keep``: superseded batches without an open or recent
attempt, snapshots of partitions' positions of which one per hour is enough, and receipts of ended generations, which
are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.action import Action, ActionKind, require_reason
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition_history import deletable_snapshots
from airflow_provider_ckpt.ledger.commands.use_proposal import use_proposal
from airflow_provider_ckpt.ledger.queries import sink_state, status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, receipts, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, Lease

_PORTION = 10_000
_FULL_HISTORY = timedelta(days=1)
_GREATEST_POSITION = 2**63 - 1

_A, _B, _E, _G = tables.attempt.c, tables.batch.c, tables.event.c, tables.generation.c
_I, _M, _P, _R = tables.stored_action.c, tables.partition_snapshot.c, tables.partition.c, tables.receipt.c

OpenTransaction = Callable[[], AbstractContextManager[Connection]]
PortionResult = tuple[int, bool]
"""Pair of the number of rows that one portion deleted or merged, and whether another portion may follow."""


class GarbageCollection:
    """Garbage collection of one pipeline: deletes old rows of the ledger, or counts them in a dry run.

    :param writing: function that opens a transaction on the ledger
    :param pipeline: name of the pipeline
    :param keep: minimum age of rows that may be deleted
    :param now: the current time, from which ages are calculated; ``now - keep`` is the *cutoff*
    :param dry_run: whether to only count the rows, and change nothing
    """

    def __init__(
        self, writing: OpenTransaction, pipeline: str, keep: timedelta, now: datetime, *, dry_run: bool
    ) -> None:
        self._writing = writing
        self._pipeline = pipeline
        self._now = now
        self._cutoff = now - keep
        self._dry_run = dry_run
        self._newest_event = 0

    def run(self, *, actor: str, reason: str | None, proposal: str | None) -> dict[str, int]:
        """Delete and merge rows, or only count them in a dry run.

        Each portion is a transaction of its own. A transaction before the first portion uses up the proposal and
        records the event ``collection_begun``, so that no row is deleted without an event, even if the process is
        killed. At the end, the event ``collected`` records the numbers of rows. A dry run records no event.

        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores; None if there is none
        :param proposal: id of the approved proposal that is used up; None if the action needs no approval
        :return: number of deleted or merged rows, by kind, such as ``{"attempts": 120, "events": 40}``
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the proposal is not approved, was used already, or is for another action; no row
            was deleted then
        """
        self._begin(actor, reason, proposal)
        steps: dict[str, Callable[[Connection], PortionResult]] = {
            "side_partitions": self._side_partitions,
            "receipts": self._receipts,
            "merged_receipts": self._merge,
            "superseded_batches": lambda connection: self._delete(connection, tables.batch, self._superseded()),
            "attempts": lambda connection: self._delete(connection, tables.attempt, self._attempts()),
            "intents": lambda connection: self._delete(connection, tables.stored_action, self._intents()),
            "proposals": lambda connection: self._delete(connection, tables.proposal, self._proposals()),
            "marks": self._snapshots,
            "events": self._events,
        }
        counts = {name: self._repeat(step) for name, step in steps.items()}
        if not self._dry_run:
            with self._writing() as connection:
                self._record_event(connection, "collected", actor, {"rows": counts, "reason": reason})
        return counts

    def _begin(self, actor: str, reason: str | None, proposal: str | None) -> None:
        """Find the newest event; unless this is a dry run, use up the proposal and record that the deletion begins.

        :param actor: the user who requests the action
        :param reason: the user's explanation; None if there is none
        :param proposal: id of the approved proposal; None if the action needs no approval
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the proposal is not approved, was used already, or is for another action
        """
        with self._writing() as connection:
            status.require_pipeline(connection, self._pipeline)
            self._newest_event = status.last_event(connection, self._pipeline)
            if self._dry_run:
                return
            if proposal is not None:
                action = Action(ActionKind.COLLECT_GARBAGE, older_than=self._cutoff)
                use_proposal(connection, proposal, action, ActionResult(action, applied=True), self._pipeline, actor)
            self._record_event(connection, "collection_begun", actor, {"reason": reason})

    def _repeat(self, step: Callable[[Connection], PortionResult]) -> int:
        total, more = 0, True
        while more:
            with self._writing() as connection:
                lease_store.lock_row(connection, self._pipeline)
                found, more = step(connection)
            total += found
        return total

    def _delete(self, connection: Connection, table: sa.Table, where: sa.ColumnElement[bool]) -> PortionResult:
        if self._dry_run:
            return connection.execute(sa.select(sa.func.count()).select_from(table).where(where)).scalar_one(), False
        keys = list(table.primary_key)
        portion = sa.select(*keys).where(where).limit(_PORTION)
        found = connection.execute(table.delete().where(sa.tuple_(*keys).in_(portion))).rowcount
        return found, found == _PORTION

    def _attempts(self) -> sa.ColumnElement[bool]:
        return sa.and_(_A.pipeline == self._pipeline, _A.outcome.is_not(None), _A.ended_at < self._cutoff)

    def _intents(self) -> sa.ColumnElement[bool]:
        return sa.and_(_I.pipeline == self._pipeline, _I.applied_at < self._cutoff)

    def _proposals(self) -> sa.ColumnElement[bool]:
        """Return the SQL condition for the proposals to delete: those that expired more than ``keep`` ago.

        The events of the actions that were carried out remain in the audit log.
        """
        columns = tables.proposal.c
        return sa.and_(columns.pipeline == self._pipeline, columns.expires_at < self._cutoff)

    def _superseded(self) -> sa.ColumnElement[bool]:
        """Return the SQL condition for the superseded batches to delete.

        Superseded batches with an attempt that is open, or that ended less than ``keep`` ago, are kept.
        """
        recent = sa.exists().where(
            _A.pipeline == _B.pipeline,
            _A.generation == _B.generation,
            _A.partition == _B.partition,
            _A.seq == _B.seq,
            sa.or_(_A.outcome.is_(None), _A.ended_at >= self._cutoff),
        )
        return sa.and_(_B.pipeline == self._pipeline, _B.state == BatchState.SUPERSEDED.value, ~recent)

    def _finished_side_partitions(self, connection: Connection) -> list[sa.RowMapping]:
        """Return the rows of side partitions that ended more than ``keep`` ago and that recovery no longer needs.

        Recovery needs no replays of dead letters, and no side partitions whose range the low watermark has passed.
        """
        rows = connection.execute(sa.select(tables.partition).where(_P.pipeline == self._pipeline)).mappings().all()
        low = {row["partition"]: row["low"] for row in rows if row["side_end"] is None}
        batches = sa.select(_B.partition).where(_B.pipeline == self._pipeline).distinct()
        live = set(connection.execute(batches).scalars())
        return [
            row
            for row in rows
            if row["side_end"] is not None
            and row["committed"] == row["side_end"]
            and row["partition"] not in live
            and (row["moved_at"] is None or row["moved_at"] < self._cutoff)
            and row["side_end"] <= low.get(_recovering_partition(row), _GREATEST_POSITION)
        ]

    def _side_partitions(self, connection: Connection) -> PortionResult:
        """Delete the rows of :meth:`_finished_side_partitions`, after storing their totals with their generation.

        :meth:`_receipts` deletes their receipts.

        :return: the number of these side partitions, and False, because there is no further portion
        """
        done = self._finished_side_partitions(connection)
        if self._dry_run or not done:
            return len(done), False
        key_columns = ("pipeline", "generation", "partition")
        ended = [
            {
                **{name: row[name] for name in (*key_columns, "committed", *tables.TOTALS)},
                "ended_at": row["moved_at"],
                "single_from": row["low"],
            }
            for row in done
        ]
        bulk_sql.update(connection, tables.generation, ended)
        deleted_keys = [{"pipeline": self._pipeline, "partition": row["partition"]} for row in done]
        bulk_sql.delete(connection, tables.partition_snapshot, deleted_keys)
        bulk_sql.delete(connection, tables.partition, deleted_keys)
        return len(done), False

    def _receipts(self, connection: Connection) -> PortionResult:
        """Delete one portion of the receipts of generations that ended more than ``keep`` ago.

        The totals of these receipts stay in the generation's row.

        :return: the number of these receipts, and whether another portion may follow
        """
        long_ago = sa.and_(_G.pipeline == self._pipeline, _G.ended_at < self._cutoff)
        generations = [tuple(row) for row in connection.execute(sa.select(_G.generation, _G.partition).where(long_ago))]
        if self._dry_run:
            generations += [(row["generation"], row["partition"]) for row in self._finished_side_partitions(connection)]
        total = 0
        for generation, partition in generations:
            of_generation = sa.and_(
                _R.pipeline == self._pipeline, _R.generation == generation, _R.partition == partition
            )
            found, more = self._delete(connection, tables.receipt, of_generation)
            total += found
            if more:
                return total, True
        return total, False

    def _merge(self, connection: Connection) -> PortionResult:
        """Merge one portion of the receipts of ended generations that are still stored one per batch.

        During a generation, receipts are merged as soon as the low watermark passes them. This step merges the receipts
        above the last low watermark of a generation that ended less than ``keep`` ago; :meth:`_receipts` deletes older
        ones.

        :return: the decrease in the number of rows, and whether another portion follows
        """
        single = sa.and_(_G.pipeline == self._pipeline, _G.single_from.is_not(None), _G.ended_at >= self._cutoff)
        rows = connection.execute(sa.select(_G.generation, _G.partition, _G.single_from).where(single)).all()
        total = 0
        for generation, partition, start in rows:
            of_generation = sa.and_(
                _R.pipeline == self._pipeline, _R.generation == generation, _R.partition == partition
            )
            later_starts = (
                sa.select(_R.range_start).where(of_generation, _R.range_start >= start).order_by(_R.range_start)
            )
            below = None
            if not self._dry_run:
                below = connection.execute(later_starts.limit(1).offset(_PORTION)).scalar_one_or_none()
            row_range = receipts.RowRange(generation, partition, start, _GREATEST_POSITION if below is None else below)
            total += receipts.compact(connection, self._pipeline, [row_range], dry_run=self._dry_run)
            if not self._dry_run:
                row = {"pipeline": self._pipeline, "generation": generation, "partition": partition}
                bulk_sql.update(connection, tables.generation, [{**row, "single_from": below}])
            if below is not None:
                return total, True
        return total, False

    def _snapshots(self, connection: Connection) -> PortionResult:
        """Delete one portion of the snapshots of partitions' positions that are no longer needed.

        Snapshots younger than ``keep`` are kept, and those that determine the next low watermarks: all since the first
        one of the present generation whose end of the plan is beyond the low watermark. Of all snapshots that are older
        than a day, only one per hour is kept.

        :return: the number of these snapshots, and whether another portion follows
        """
        query = sa.select(_M.partition, _M.at, _M.generation, _M.planned_end).where(_M.pipeline == self._pipeline)
        by_partition: dict[str, list[Any]] = {}
        for row in connection.execute(query.order_by(_M.partition, _M.at)):
            by_partition.setdefault(row.partition, []).append(row)
        known = connection.execute(sa.select(tables.partition).where(_P.pipeline == self._pipeline)).mappings()
        partitions = {row["partition"]: row for row in known}
        deletable: list[dict[str, Any]] = []
        for name, snapshots in by_partition.items():
            partition = partitions[name]
            needed = (
                row.at
                for row in snapshots
                if row.generation == partition["generation"] and row.planned_end > partition["low"]
            )
            cutoff = min(self._cutoff, next(needed, self._cutoff))
            times = deletable_snapshots(
                [row.at for row in snapshots], cutoff=cutoff, thin_before=self._now - _FULL_HISTORY
            )
            deletable += [{"pipeline": self._pipeline, "partition": name, "at": at} for at in times]
        if self._dry_run:
            return len(deletable), False
        bulk_sql.delete(connection, tables.partition_snapshot, deletable[:_PORTION])
        return len(deletable[:_PORTION]), len(deletable) > _PORTION

    def _events(self, connection: Connection) -> PortionResult:
        """Delete one portion of the events older than ``keep``, except the newest and those with accepted losses.

        If the newest event were deleted, SQLite would assign its id to the next event, which would be overlooked by
        queries for the events after an id. Without the accepted losses of the sink, an audit would report them as new.

        :return: the number of these events, and whether another portion may follow
        """
        deletable = sa.and_(_E.pipeline == self._pipeline, _E.kind != sink_state.ACCEPTED)
        old = sa.and_(deletable, _E.at < self._cutoff, _E.id < self._newest_event)
        if self._dry_run:
            return self._delete(connection, tables.event, old)
        ids = connection.execute(sa.select(_E.id).where(old).order_by(_E.id).limit(_PORTION)).scalars().all()
        if ids:
            connection.execute(tables.event.delete().where(old, _E.id <= ids[-1]))
            own = tables.pipeline.c.name == self._pipeline
            connection.execute(tables.pipeline.update().where(own).values(collected_to=ids[-1]))
        return len(ids), len(ids) == _PORTION

    def _record_event(self, connection: Connection, kind: str, actor: str, detail: dict[str, Any]) -> None:
        lease_row = lease_store.lock_row(connection, self._pipeline)
        epoch = 0 if lease_row is None else lease_row.epoch
        event_lease = Lease(self._pipeline, actor, epoch, timedelta(0), self._now)
        row = events.event_row(event_lease, self._now, kind, detail | {"before": self._cutoff.isoformat()})
        bulk_sql.insert(connection, tables.event, [row])


def _recovering_partition(row: sa.RowMapping) -> str | None:
    """Return the source partition whose recovery still needs the receipts of a side partition; None for replays.

    A replay of dead letters covers no range of the source.

    :param row: row of a side partition
    """
    key = BatchKey(row["generation"], row["partition"], 0)
    return None if key.is_replay else key.source


class GarbageCollectionCommands(Session):
    """Command by which a user deletes old rows of a pipeline from the ledger."""

    def garbage_collect(
        self,
        pipeline: str,
        *,
        keep: timedelta,
        actor: str,
        reason: str | None = None,
        now: datetime | None = None,
        dry_run: bool = False,
        proposal: str | None = None,
    ) -> dict[str, int]:
        """Delete rows of a pipeline that are older than ``keep`` and no longer needed; a run may continue meanwhile.

        Receipts in the sink are not touched. The docstring of the module lists the rows that are always kept.

        :param pipeline: name of the pipeline
        :param keep: minimum age of rows that may be deleted
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores; None if there is none
        :param now: time from which ages are calculated; None for the current time
        :param dry_run: whether to only count the rows, and change nothing
        :param proposal: id of the approved proposal, which is used up before the first row is deleted; None if the
            action needs no approval
        :return: number of deleted or merged rows, by kind, such as ``{"attempts": 120, "events": 40}``
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the proposal is not approved, was used already, or is for another action; no row
            was deleted then
        """
        require_reason("collect", actor, reason, required=False)
        moment = now or datetime.now(UTC)
        collection = GarbageCollection(self._writing, pipeline, keep, moment, dry_run=dry_run)
        return collection.run(actor=actor, reason=reason, proposal=proposal)
