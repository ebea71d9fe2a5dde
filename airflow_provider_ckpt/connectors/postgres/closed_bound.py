"""The closed bound: the position before which nothing new can appear in a table any more.

A candidate is noted (one past the greatest cursor value) and after it the transactions then running. Whoever drew a
smaller value was running by then; once they have ended, nothing can appear below the candidate. A candidate that
did not close in time is kept for the next planning, as JSON.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.column_types import DAY, INTEGERS, CursorKind, position_sql
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.core.errors import SourceError

_POLL = (0.005, 0.25)
"""Seconds between looks at the running transactions: the first pause and the longest."""

_RUNNING = """
SELECT DISTINCT l.virtualtransaction
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.pid <> pg_catalog.pg_backend_pid() AND a.datname = pg_catalog.current_database()
  AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
  AND NOT (a.backend_type IS NULL AND a.usesysid IS NULL)
"""
"""Of another user's session only database and user are visible without rights; one without a user is autovacuum's."""

_PREPARED = """
SELECT transaction::text || ' ' || gid FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database()
"""
_LAST_MICROSECOND = 2**63 - 1
_UNCOUNTED = "294247-01-01"
"""From here on the microseconds since 1970 are more than a 64-bit number holds, and infinity is later still."""

_ZONES = 900_000_000
"""Microseconds of a quarter of an hour: the time zones of all places are whole numbers of it apart."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bound that may not have closed yet.

    :param position: the candidate bound
    :param virtual: virtual transactions that were running when it was noted and have not been seen to end
    :param prepared: prepared transactions that it waits for
    :param seen: prepared transactions at the last look; one that is not among them may be a noted one, prepared since
    """

    position: int
    virtual: frozenset[str]
    prepared: frozenset[str]
    seen: frozenset[str]

    @property
    def closed(self) -> bool:
        """Whether nothing can appear below it any more."""
        return not (self.virtual or self.prepared)

    def look(self, virtual: frozenset[str], prepared: frozenset[str]) -> Candidate:
        """What it still waits for, given what runs and is prepared now; ``virtual`` must have been read first."""
        still = self.virtual & virtual
        waiting = self.prepared & prepared
        if still != self.virtual:
            waiting |= prepared - self.seen
        return Candidate(self.position, still, waiting, prepared)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "candidate": self.position,
            "virtual": sorted(self.virtual),
            "prepared": sorted(self.prepared),
            "seen": sorted(self.seen),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        """The candidate that :meth:`to_json` wrote."""
        return cls(data["candidate"], frozenset(data["virtual"]), frozenset(data["prepared"]), frozenset(data["seen"]))


@dataclass(frozen=True, slots=True)
class Closing:
    """What waiting for a bound found.

    :param bound: the newest candidate that closed, or None
    :param waiting: the newest candidate, if it did not close
    """

    bound: int | None
    waiting: Candidate | None


def close(fetch: Fetch, candidate: int | None, kept: Candidate | None, wait: float) -> Closing:
    """Wait until a candidate has closed.

    :param candidate: noted just now, before this call; None if the table is empty
    :param kept: one that an earlier planning left waiting
    :param wait: seconds at most
    """
    deadline = time.monotonic() + wait
    pause, longest = _POLL
    virtual, prepared = _transactions(fetch)
    newest = None if candidate is None else Candidate(candidate, virtual, prepared, prepared)
    older = kept and kept.look(virtual, prepared)
    while newest is not None and not newest.closed:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(pause * 2, longest)
        virtual, prepared = _transactions(fetch)
        newest = newest.look(virtual, prepared)
        older = older and older.look(virtual, prepared)
    if newest is not None and newest.closed:
        return Closing(newest.position, None)
    bound = older.position if older is not None and older.closed else None
    return Closing(bound, older if older is not None and not older.closed else newest)


def _transactions(fetch: Fetch) -> tuple[frozenset[str], frozenset[str]]:
    virtual = frozenset(row[0] for row in fetch(_RUNNING, []))
    return virtual, frozenset(row[0] for row in fetch(_PREPARED, []))


def greatest_position(fetch: Fetch, table: Table, cursor: str) -> int | None:
    """The position of the greatest cursor value, None if the table is empty.

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
    if greatest >= _LAST_MICROSECOND:
        raise SourceError(
            f"cursor {cursor} of {table.label} has reached the largest 64-bit number, so nothing can follow it.",
            hint="Choose another cursor column.",
        )
    return int(greatest)


def candidate(fetch: Fetch, table: Table, cursor: str, greatest: int | None) -> int | None:
    """One past the greatest cursor value, or less where a coarse type lets more rows of the current value appear.

    :param greatest: as :func:`greatest_position` gave it
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
    if kind is CursorKind.TIMESTAMP:  # in the time zone of whoever wrote the greatest
        earliest += round((greatest - earliest) / _ZONES) * _ZONES
    return min(following, earliest) if abs(greatest - earliest) <= granularity else following


def _earliest_next(fetch: Fetch, kind: CursorKind, precision: int) -> tuple[int, int] | None:
    """The smallest position that a row stamped with the present time may still get, of a time without zone in UTC; and
    twice the type's granularity."""
    if kind is CursorKind.DATE:  # whatever the time zone of whoever fills it in
        date = "(clock_timestamp() AT TIME ZONE 'Etc/GMT+12')::date"
        return int(fetch(f"SELECT {position_sql(kind, date)}", [])[0][0]), 2 * DAY
    if kind in INTEGERS or not 0 <= precision < 6:
        return None
    rounded = f"clock_timestamp()::{kind}({precision})"
    return int(fetch(f"SELECT {position_sql(kind, rounded)}", [])[0][0]), 2 * 10 ** (6 - precision)


def _refuse_infinity(fetch: Fetch, table: Table, cursor: str) -> None:
    name = quote(cursor)
    bounds = f"isfinite(min({name})) AND max({name}) < '{_UNCOUNTED}'"
    if not fetch(f"SELECT coalesce({bounds}, true) FROM {table.sql}", [])[0][0]:
        raise SourceError(
            f"cursor {cursor} of {table.label} holds infinity or a time after the year 294246, which has no position.",
            hint=f"Give those rows a real time: SELECT * FROM {table.sql} "
            f"WHERE {name} = '-infinity' OR {name} >= '{_UNCOUNTED}'.",
        )
