"""Queries that return long lists page by page: batches, events, dead letters, proposals, stored actions.

A page begins after the key of the last item of the previous page, so that no item is repeated or left out if new items
are added in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetterState, IndexEntry
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.store import dead_letter_index, tables
from airflow_provider_ckpt.ledger.store.batches import BATCH_COLUMNS, batch_from

_P, _B, _E, _D, _A = tables.partition.c, tables.batch.c, tables.event.c, tables.dead_letter.c, tables.stored_action.c
_EVENTS_SEARCHED = 20_000


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Selection of batches; an empty field restricts nothing.

    :param states: only batches in one of these states
    :param partition: only batches of this partition
    :param error_type: only batches whose newest error has this type
    :param key: only this batch; its generation is not compared
    :param text: only batches of partitions whose id contains this text
    :param window: only batches that overlap this range
    """

    states: Sequence[str] = ()
    partition: str | None = None
    error_type: str | None = None
    key: BatchKey | None = None
    text: str | None = None
    window: Range | None = None

    def conditions(self, *, states: bool) -> list[sa.ColumnElement[bool]]:
        """Return this filter as SQL conditions on the table of batches.

        :param states: whether to include the condition on the states; False to count the batches of every state
        """
        found: list[sa.ColumnElement[bool]] = [_B.state.in_(self.states)] if states and self.states else []
        found += [] if self.partition is None else [_B.partition == self.partition]
        found += [] if self.error_type is None else [_B.error["type"].as_string() == self.error_type]
        found += [] if self.text is None else [_B.partition.contains(self.text, autoescape=True)]
        if self.key is not None:
            found += [_B.partition == self.key.partition, _B.seq == self.key.seq]
        if self.window is not None:
            found += [_B.range_start < self.window.end, _B.range_end > self.window.start]
        return found


def batches(
    connection: Connection, pipeline: str, chosen: BatchFilter, *, after: tuple[str, int] | None, limit: int
) -> tuple[list[Batch], dict[str, int]]:
    """Return a page of batches of the present generations, by partition and seq, and the number of batches by state.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param chosen: filter of the batches
    :param after: partition and seq of the last batch of the previous page; None for the first page
    :param limit: maximum number of batches
    :return: the batches, and the number of batches by state, counted without the filter by state
    """
    present = tables.batch.join(
        tables.partition,
        sa.and_(_B.pipeline == _P.pipeline, _B.partition == _P.partition, _B.generation == _P.generation),
    )
    query = sa.select(*BATCH_COLUMNS).select_from(present).where(_B.pipeline == pipeline)
    query = query.where(*chosen.conditions(states=True)).order_by(_B.partition, _B.seq).limit(limit)
    if after is not None:
        query = query.where(sa.or_(_B.partition > after[0], sa.and_(_B.partition == after[0], _B.seq > after[1])))
    found = [batch_from(row) for row in connection.execute(query)]
    totals = sa.select(_B.state, sa.func.count()).select_from(present).where(_B.pipeline == pipeline)
    totals = totals.where(*chosen.conditions(states=False)).group_by(_B.state)
    return found, {row[0]: row[1] for row in connection.execute(totals)}


def events(
    connection: Connection,
    pipeline: str,
    *,
    before: int | None,
    limit: int,
    kinds: Sequence[str] = (),
    actor: str | None = None,
    key: BatchKey | None = None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return a page of a pipeline's audit log, newest first, and the id before which the next page begins.

    At most 20,000 events are searched for matching events, so a page may be empty although more events follow.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param before: only events with a lower id; None for the newest
    :param limit: maximum number of events
    :param kinds: only events of these kinds; all if empty
    :param actor: only events of this actor; None for all
    :param key: only events of this batch; None for all
    :return: rows of the table of events, and the id for ``before`` of the next page; None if there is no further page
    """
    of_pipeline = [_E.pipeline == pipeline] if before is None else [_E.pipeline == pipeline, _E.id < before]
    newest = sa.select(tables.event).where(*of_pipeline).order_by(_E.id.desc()).limit(_EVENTS_SEARCHED).subquery()
    c = newest.c
    wanted: list[sa.ColumnElement[bool]] = [c.kind.in_(kinds)] if kinds else []
    wanted += [] if actor is None else [c.actor == actor]
    if key is not None:
        wanted += [c.generation == key.generation, c.partition == key.partition, c.seq == key.seq]
    query = sa.select(newest).where(*wanted).order_by(c.id.desc()).limit(limit)
    found = [dict(row) for row in connection.execute(query).mappings()]
    if len(found) == limit:
        return found, found[-1]["id"]
    edge = sa.select(_E.id).where(*of_pipeline).order_by(_E.id.desc()).offset(_EVENTS_SEARCHED - 1).limit(1)
    return found, connection.execute(edge).scalar_one_or_none()


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selection of entries of the dead letter index; an empty field restricts nothing.

    :param states: only dead letters in one of these states
    :param types: only dead letters with one of these error types
    :param batches: only dead letters of these batches
    :param since: only dead letters of batches whose receipt was claimed at this time or later
    :param until: only dead letters of batches whose receipt was claimed before this time
    """

    states: Sequence[DeadLetterState] = ()
    types: Sequence[str] = ()
    batches: Sequence[BatchKey] = ()
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self, pipeline: str) -> list[sa.ColumnElement[bool]]:
        """Return this filter as SQL conditions on the table of dead letters.

        :param pipeline: name of the pipeline
        """
        found: list[sa.ColumnElement[bool]] = [_D.pipeline == pipeline]
        found += [_D.state.in_([state.value for state in self.states])] if self.states else []
        found += [_D.error_type.in_(self.types)] if self.types else []
        found += [] if self.since is None else [_D.at >= self.since]
        found += [] if self.until is None else [_D.at < self.until]
        if self.batches:
            keys = [(key.generation, key.partition, key.seq) for key in self.batches]
            found.append(sa.tuple_(_D.generation, _D.partition, _D.seq).in_(keys))
        return found


def dead_letters(
    connection: Connection, pipeline: str, chosen: DeadLetterFilter, *, after: Sequence[Any] | None, limit: int
) -> list[IndexEntry]:
    """Return a page of the dead letter index, ordered by batch, error type and ordinal.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param chosen: filter of the dead letters
    :param after: generation, partition, seq, error type and ordinal of the last entry of the previous page; None for
        the first page
    :param limit: maximum number of entries
    """
    order = (_D.generation, _D.partition, _D.seq, _D.error_type, _D.ordinal)
    query = sa.select(tables.dead_letter).where(*chosen.conditions(pipeline)).order_by(*order).limit(limit)
    if after is not None:
        query = query.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, after)))
    return [dead_letter_index.entry_from_row(row) for row in connection.execute(query).mappings()]


def dead_letter_groups(
    connection: Connection, pipeline: str, chosen: DeadLetterFilter, *, limit: int
) -> list[dict[str, Any]]:
    """Return the numbers of dead letters by hour, error type and state, newest hour first.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param chosen: filter of the dead letters
    :param limit: maximum number of groups
    :return: a dict for each group: ``hour``, ``error_type``, ``state``, ``records``, the number of ``batches``, and the
        times ``first_at`` and ``last_at``
    """
    if connection.dialect.name == "sqlite":
        hour: sa.ColumnElement[Any] = sa.func.strftime("%Y-%m-%dT%H:00:00+00:00", _D.at)
    else:
        hour = sa.func.date_trunc("hour", _D.at, type_=tables.UtcTime())
    batch = sa.func.count(sa.distinct(_D.partition + "#" + sa.cast(_D.seq, sa.Text)))
    query = (
        sa.select(
            hour.label("hour"),
            _D.error_type,
            _D.state,
            sa.func.sum(_D.records).label("records"),
            batch.label("batches"),
            sa.func.min(_D.at, type_=tables.UtcTime()).label("first_at"),
            sa.func.max(_D.at, type_=tables.UtcTime()).label("last_at"),
        )
        .where(*chosen.conditions(pipeline))
        .group_by(hour, _D.error_type, _D.state)
        .order_by(hour.desc(), sa.func.sum(_D.records).desc(), _D.error_type, _D.state)
        .limit(limit)
    )
    return [dict(row) | {"records": int(row["records"])} for row in connection.execute(query).mappings()]


def dead_letter_totals(connection: Connection, pipeline: str, chosen: DeadLetterFilter) -> dict[str, int]:
    """Return the numbers of dead letters by state.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param chosen: filter of the dead letters
    """
    query = sa.select(_D.state, sa.func.sum(_D.records)).where(*chosen.conditions(pipeline)).group_by(_D.state)
    return {state: int(records) for state, records in connection.execute(query)}


def proposals(connection: Connection, pipeline: str, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest proposals of a pipeline, newest first, as dicts by column, without the text of the question.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param limit: maximum number of proposals
    """
    c = tables.proposal.c
    columns = [column for column in c if column.name not in ("body", "subject")]
    query = sa.select(*columns).where(c.pipeline == pipeline).order_by(c.created_at.desc(), c.id).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def stored_actions(connection: Connection, pipeline: str, *, ended: int) -> list[dict[str, Any]]:
    """Return the stored actions that wait for a run, and the newest applied or refused ones, newest first.

    Each action is a dict by column of the ledger's table.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param ended: maximum number of applied or refused actions
    """
    query = sa.select(tables.stored_action).where(_A.pipeline == pipeline)
    pending = query.where(_A.applied_at.is_(None))
    newest = query.where(_A.applied_at.is_not(None)).order_by(_A.id.desc()).limit(ended)
    rows = [dict(row) for part in (pending, newest) for row in connection.execute(part).mappings()]
    return sorted(rows, key=lambda row: row["id"], reverse=True)


def partition_rows(connection: Connection, pipeline: str, *, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the partitions of a pipeline, source partitions first, and the number of all partitions.

    Each partition is a dict by column of the ledger's table. Its additional key ``states`` has the number of batches
    beyond the checkpoint by state, and ``batches_settled`` the number of batches that the checkpoint has passed.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param limit: maximum number of rows
    """
    of_pipeline = _P.pipeline == pipeline
    query = sa.select(tables.partition).where(of_pipeline)
    query = query.order_by(_P.side_end.is_not(None), _P.generation.desc(), _P.partition).limit(limit)
    rows = [
        dict(row) | {"batches_settled": row["batches"], "states": {}} for row in connection.execute(query).mappings()
    ]
    by_id = {row["partition"]: row for row in rows}
    states = (
        sa.select(_B.partition, _B.generation, _B.state, sa.func.count().label("batches"))
        .where(_B.pipeline == pipeline, _B.state != BatchState.SUPERSEDED.value)
        .group_by(_B.partition, _B.generation, _B.state)
    )
    for item in connection.execute(states):
        row = by_id.get(item.partition)
        if row is not None and row["generation"] == item.generation:
            row["states"][item.state] = item.batches
    total = connection.execute(sa.select(sa.func.count()).select_from(tables.partition).where(of_pipeline))
    return rows, total.scalar_one()
