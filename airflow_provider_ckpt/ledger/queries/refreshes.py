"""Query the progress of a pipeline's refreshes that are not published, and the reason why a publication is held.

A refresh reads all rows of the source and stages them; its publishing batch then replaces the target's rows by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import BLOCKING, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.ledger.queries.line_batches import of_generation
from airflow_provider_ckpt.ledger.store import tables

MAX_REFRESHES = 20
"""Maximum number of refreshes that the query returns.

A pipeline has one for each source partition at most, and a source that is refreshed has one partition.
"""

_EVENTS = 5 * MAX_REFRESHES
_PARTITIONS = 500
_P, _B, _E, _A = tables.partition.c, tables.batch.c, tables.event.c, tables.attempt.c


@dataclass(frozen=True, slots=True)
class HeldPublication:
    """The publishing batch of a refresh, while it is held.

    :param key: the publishing batch
    :param reason: the reason why the batch is held; None if the ledger has neither a reason nor an error
    :param since: when the batch was held because of the number of rows; None if it is held for another reason
    """

    key: BatchKey
    reason: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class RefreshProgress:
    """Progress of a refresh that is not published.

    :param partition: id of the source partition
    :param generation: generation of the refresh
    :param begun_at: when a run began the refresh; None if the audit log no longer has the event
    :param positions: number of positions that the batches of rows cover: the number of pages of a PostgreSQL table, and
        1 for any other table, which one batch reads as a whole
    :param staged_positions: number of positions that are staged, or whose records are dead letters
    :param staged_batches: number of batches of the staged positions
    :param open_batches: number of batches that are planned, in flight or held, without the publishing batch
    :param held_batches: number of held batches, without the publishing batch
    :param skipped_batches: number of batches of rows that were skipped, so that the refresh cannot be published
    :param released: whether the publishing batch was held because of the number of rows, and a user has released it
    :param held: the publishing batch if it is held; else None
    """

    partition: str
    generation: int
    begun_at: datetime | None
    positions: int
    staged_positions: int
    staged_batches: int
    open_batches: int
    held_batches: int
    skipped_batches: int
    released: bool
    held: HeldPublication | None


def refreshes(connection: Connection, pipeline: str) -> list[RefreshProgress]:
    """Return the progress of a pipeline's refreshes that are not published, by partition, at most 20.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    """
    query = sa.select(tables.partition).where(_P.pipeline == pipeline, _P.side_end.is_(None))
    rows = connection.execute(query.order_by(_P.partition).limit(_PARTITIONS)).mappings()
    extents = [(row, RefreshExtent.of(row["state"])) for row in rows]
    open_ones = [(row, extent) for row, extent in extents if extent and row["committed"] < extent.publication.end]
    if not open_ones:
        return []
    of_refreshes = sa.select(_E.kind, _E.at, _E.detail).where(_E.pipeline == pipeline, sa.text(f"({tables.REFRESHES})"))
    events = connection.execute(of_refreshes.order_by(_E.id.desc()).limit(_EVENTS)).all()
    return [_progress(connection, row, extent, events) for row, extent in open_ones[:MAX_REFRESHES]]


def _progress(
    connection: Connection, row: sa.RowMapping, extent: RefreshExtent, events: Sequence[Any]
) -> RefreshProgress:
    publishes = _B.range_start == extent.rows_end
    beyond = (
        of_generation(_B, row), _B.range_start >= row["committed"], _B.state != BatchState.SUPERSEDED.value,
    )  # fmt: skip
    positions = sa.func.sum(_B.range_end - _B.range_start)
    totals = connection.execute(
        sa.select(_B.state, sa.func.count(), positions).where(*beyond, sa.not_(publishes)).group_by(_B.state)
    )
    by_state = {BatchState(state): (batches, int(length)) for state, batches, length in totals}
    unstaged = {*BLOCKING, BatchState.SKIPPED}
    staged = [found for state, found in by_state.items() if state not in unstaged]
    skipped = by_state.get(BatchState.SKIPPED, (0, 0))[0]
    publication = connection.execute(sa.select(_B.seq, _B.state, _B.error).where(*beyond, publishes)).one_or_none()
    is_held = publication is not None and publication.state == BatchState.HELD.value
    name = row["partition"]
    begun = (event.at for event in events if event.kind == "refresh_begun" and event.detail["partition"] == name)
    return RefreshProgress(
        row["partition"],
        row["generation"],
        next(begun, None),
        extent.rows_end,
        min(row["committed"], extent.rows_end) + sum(length for _, length in staged),
        row["batches"] - row["skipped"] + sum(batches for batches, _ in staged),
        sum(by_state[state][0] for state in BLOCKING & by_state.keys()),
        by_state.get(BatchState.HELD, (0, 0))[0],
        row["skipped"] + skipped,
        extent.questioned and not is_held,
        _held(connection, row, publication, events) if is_held else None,
    )


def _held(connection: Connection, row: sa.RowMapping, publication: Any, events: Sequence[Any]) -> HeldPublication:
    """Return the publishing batch with the reason why it is held: the number of rows, or the error of its last attempt.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param publication: row with seq, state and error of the publishing batch
    :param events: events of the pipeline's refreshes, newest first
    """
    key = BatchKey(row["generation"], row["partition"], publication.seq)
    last_attempt = connection.execute(
        sa.select(sa.func.max(_A.began_at, type_=tables.UtcTime())).where(
            of_generation(_A, row), _A.seq == publication.seq
        )
    ).scalar_one()
    for event in events:
        if event.kind == "publication_held" and event.detail["batch"] == str(key):
            if last_attempt is None or event.at >= last_attempt:
                return HeldPublication(key, event.detail["reason"], event.at)
            break
    error = publication.error
    return HeldPublication(key, None if error is None else error["message"], None)
