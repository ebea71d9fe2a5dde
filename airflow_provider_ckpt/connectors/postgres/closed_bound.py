"""Find the closed bound: the position below which no new rows can appear in a table.

First, planning reads a candidate (one past the greatest cursor value), then the list of running transactions. Every
transaction that has taken a smaller cursor value and is not committed is in this list; once all listed transactions
have ended, no row can appear below the candidate. A candidate that does not close in time is stored in the state of the
partition, as JSON, and the next planning continues to wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import READ_APPLICATION, SNAPSHOT_APPLICATION, quote
from airflow_provider_ckpt.connectors.postgres.column_types import (
    INTEGERS,
    MICROSECONDS_A_DAY,
    CursorKind,
    position_sql,
)
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.core.errors import SourceError

_POLL_SECONDS = (0.005, 0.25)
"""Shortest and longest pause between polls of the running transactions, in seconds."""

_RUNNING = f"""
SELECT DISTINCT l.virtualtransaction
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.pid <> pg_catalog.pg_backend_pid() AND a.datname = pg_catalog.current_database()
  AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
  AND NOT (a.backend_type IS NULL AND a.usesysid IS NULL)
  AND (
    a.usename IS DISTINCT FROM session_user
    OR left(coalesce(a.application_name, ''), {len(READ_APPLICATION)}) <> '{READ_APPLICATION}'
    AND left(coalesce(a.application_name, ''), {len(SNAPSHOT_APPLICATION)}) <> '{SNAPSHOT_APPLICATION}'
  )
"""
"""Query of the virtual ids of running transactions of other sessions in this database.

Autovacuum, parallel workers and WAL senders are left out, and so are this package's own sessions that only read: the
snapshot of a full refresh lasts as long as the refresh, and would delay other tables of the database. They are
recognised by their application name, which any session can choose, and therefore only among sessions of the same user.
An ordinary user does not see the type of another user's session, only its database and user, so autovacuum is also
recognised by its absent user.
"""

_PREPARED = """
SELECT transaction::text || ' ' || gid FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database()
"""
_MAX_POSITION = 2**63 - 1
_FIRST_UNREPRESENTABLE = "294247-01-01"
"""First date, as SQL text, whose microseconds since 1970 do not fit into a 64-bit integer; ``infinity`` is greater."""

_ZONE_STEP = 900_000_000
"""Microseconds of a quarter of an hour, of which the offset of every time zone is a multiple."""


@dataclass(frozen=True, slots=True)
class CandidateBound:
    """Candidate for a closed bound, with the transactions that may still write rows below it.

    :param position: the candidate position
    :param virtual: virtual ids of the transactions that were running when the candidate was read and have not ended
    :param prepared: ids of prepared transactions (two-phase commit) that must end before the bound closes
    :param newest_prepared: ids of all prepared transactions at the last poll. A transaction that vanishes from
        ``virtual`` may have been prepared instead of ended; therefore all transactions prepared since this poll are
        then added to ``prepared``
    """

    position: int
    virtual: frozenset[str]
    prepared: frozenset[str]
    newest_prepared: frozenset[str]

    @property
    def closed(self) -> bool:
        """Return whether the bound has closed: all transactions that could write rows below it have ended."""
        return not (self.virtual or self.prepared)

    def without_ended(self, virtual: frozenset[str], prepared: frozenset[str]) -> CandidateBound:
        """Return the candidate without the transactions that have ended.

        If a transaction of :attr:`virtual` has vanished, it may have been prepared instead of ended, so all
        transactions that were prepared meanwhile are added.

        :param virtual: virtual ids of the transactions that are running now; must be read before ``prepared``
        :param prepared: ids of the transactions that are prepared now
        """
        still = self.virtual & virtual
        waiting = self.prepared & prepared
        if still != self.virtual:
            waiting |= prepared - self.newest_prepared
        return CandidateBound(self.position, still, waiting, prepared)

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "candidate": self.position,
            "virtual": sorted(self.virtual),
            "prepared": sorted(self.prepared),
            "seen": sorted(self.newest_prepared),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CandidateBound:
        """Restore a candidate from the output of :meth:`to_json`."""
        return cls(data["candidate"], frozenset(data["virtual"]), frozenset(data["prepared"]), frozenset(data["seen"]))


@dataclass(frozen=True, slots=True)
class ClosedBound:
    """Result of waiting for a bound to close.

    :param bound: position of the newest candidate that has closed; None if none has
    :param open_candidate: the candidate to wait for at the next planning; None if the newest one has closed
    """

    bound: int | None
    open_candidate: CandidateBound | None


def wait_until_closed(fetch: Fetch, candidate: int | None, stored: CandidateBound | None, wait: float) -> ClosedBound:
    """Wait until the candidate has closed or the time limit is reached, and return the newest closed bound.

    A candidate of an earlier planning may close before the new one; it is then the bound, even if the new candidate
    stays open.

    :param fetch: runs a query on the source database and returns its rows
    :param candidate: the new candidate position, read just before this call; None if the table is empty
    :param stored: candidate of an earlier planning that had not closed then; None if there is none
    :param wait: longest time to wait, in seconds
    """
    deadline = time.monotonic() + wait
    pause, longest = _POLL_SECONDS
    virtual, prepared = _transactions(fetch)
    newest = None if candidate is None else CandidateBound(candidate, virtual, prepared, prepared)
    older = stored and stored.without_ended(virtual, prepared)
    while newest is not None and not newest.closed:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(pause * 2, longest)
        virtual, prepared = _transactions(fetch)
        newest = newest.without_ended(virtual, prepared)
        older = older and older.without_ended(virtual, prepared)
    if newest is not None and newest.closed:
        return ClosedBound(newest.position, None)
    bound = older.position if older is not None and older.closed else None
    return ClosedBound(bound, older if older is not None and not older.closed else newest)


def _transactions(fetch: Fetch) -> tuple[frozenset[str], frozenset[str]]:
    virtual = frozenset(row[0] for row in fetch(_RUNNING, []))
    return virtual, frozenset(row[0] for row in fetch(_PREPARED, []))


def greatest_position(fetch: Fetch, table: Table, cursor: str) -> int | None:
    """Return the position of the greatest cursor value; None if the table is empty.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the source table
    :param cursor: the cursor column's name
    :raises SourceError: if the greatest or smallest value is infinite or too large to have a successor
    """
    kind = CursorKind(table.by_name[cursor].base_type)
    if kind not in INTEGERS:
        _refuse_infinity(fetch, table, cursor)
    # The sub-select keeps the maximum an index lookup and gives the expression a plain column.
    query = f"SELECT {position_sql(kind, 'c')} FROM (SELECT max({quote(cursor)}) AS c FROM {table.sql}) AS m"
    greatest = fetch(query, [])[0][0]
    if greatest is None:
        return None
    if greatest >= _MAX_POSITION:
        raise SourceError(
            f"cursor {cursor} of {table.label} has reached the largest 64-bit number, so no greater value can follow.",
            hint="Choose another cursor column.",
        )
    return int(greatest)


def candidate_position(fetch: Fetch, table: Table, cursor: str, greatest: int | None) -> int | None:
    """Return the new candidate for the closed bound: one past the greatest cursor value, or less for a coarse type.

    All rows of one day get the same ``date``, and all rows of one second the same ``timestamp(0)``. With such types the
    candidate does not exceed the smallest position that a row inserted now can get.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the source table
    :param cursor: the cursor column's name
    :param greatest: result of :func:`greatest_position`
    :return: the candidate position; None if the table is empty
    """
    if greatest is None:
        return None
    column = table.by_name[cursor]
    kind = CursorKind(column.base_type)
    following = greatest + 1
    now = _earliest_next(fetch, kind, column.modifier)
    if now is None:
        return following
    earliest, granularity = now
    if kind is CursorKind.TIMESTAMP:  # move it to the time zone of the session that wrote the greatest value
        earliest += round((greatest - earliest) / _ZONE_STEP) * _ZONE_STEP
    return min(following, earliest) if abs(greatest - earliest) <= granularity else following


def _earliest_next(fetch: Fetch, kind: CursorKind, precision: int) -> tuple[int, int] | None:
    """Return the smallest position that a row inserted now can get, and twice the resolution of the cursor's type.

    Twice the resolution is, for example, two days for a ``date``, in microseconds. If the greatest cursor value is
    farther than this from the smallest position, no row inserted now can get the same value. A time without time zone
    is taken as UTC. Return None if the cursor is an integer, or its type has a resolution of a microsecond.

    :param fetch: runs a query on the source database and returns its rows
    :param kind: type of the cursor
    :param precision: number of fractional digits of the cursor's seconds; negative for all six
    """
    if kind is CursorKind.DATE:  # today in the westernmost time zone
        date = "(clock_timestamp() AT TIME ZONE 'Etc/GMT+12')::date"
        return int(fetch(f"SELECT {position_sql(kind, date)}", [])[0][0]), 2 * MICROSECONDS_A_DAY
    if kind in INTEGERS or not 0 <= precision < 6:
        return None
    rounded = f"clock_timestamp()::{kind}({precision})"
    return int(fetch(f"SELECT {position_sql(kind, rounded)}", [])[0][0]), 2 * 10 ** (6 - precision)


def _refuse_infinity(fetch: Fetch, table: Table, cursor: str) -> None:
    name = quote(cursor)
    bounds = f"isfinite(min({name})) AND max({name}) < '{_FIRST_UNREPRESENTABLE}'"
    if not fetch(f"SELECT coalesce({bounds}, true) FROM {table.sql}", [])[0][0]:
        raise SourceError(
            f"cursor {cursor} of {table.label} contains infinity or a time after the year 294246, which has no "
            "position.",
            hint=f"Set a finite time in those rows: SELECT * FROM {table.sql} "
            f"WHERE {name} = '-infinity' OR {name} >= '{_FIRST_UNREPRESENTABLE}'.",
        )
