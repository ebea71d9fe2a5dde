"""Timelines of a PostgreSQL server's write-ahead log: whether a failover or a restore lost what was read before.

A standby that takes over begins a new timeline. Its history names the places in the log at which earlier ones were
left; it is a file, which an ordinary user cannot read. The function that ``airflow ckpt db roles source`` prints
returns just those places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch

FUNCTION = "ckpt_timeline_history"
"""Name of the function by which an ordinary user reads the history."""

READ_FILE = "pg_catalog.pg_read_file(text, bigint, bigint, boolean)"

SWITCHES = r"""
SELECT line[1]::pg_catalog.int8 AS timeline, line[2]::pg_catalog.pg_lsn AS switched
FROM pg_catalog.regexp_matches(
    pg_catalog.pg_read_file(
        CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN
            'pg_wal/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
            || '.history' END,
        0, 1048576, true),
    '^(\d+)\t(\S+)', 'gn') AS line
"""
"""Each ancestor of the server's timeline, and the end of what the server has of it; nothing without a history."""

_SERVER = """
SELECT pg_catalog.txid_current_snapshot()::text, pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
       CASE WHEN logs THEN substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END,
       CASE WHEN logs THEN pg_catalog.pg_current_wal_insert_lsn()::text END
FROM (SELECT NOT pg_catalog.pg_is_in_recovery()
          AND pg_catalog.has_function_privilege('pg_catalog.pg_walfile_name(pg_lsn)', 'EXECUTE') AS logs) AS server
"""
_MAY_READ_FILES = f"SELECT pg_catalog.has_function_privilege('{READ_FILE}', 'EXECUTE')"
_FUNCTION_THERE = f"""
SELECT n.nspname::text FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = '{FUNCTION}' AND p.pronargs = 0 AND p.prosecdef
  AND pg_catalog.has_function_privilege(p.proowner, '{READ_FILE}', 'EXECUTE')
  AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
ORDER BY n.nspname LIMIT 1
"""
"""A schema with the function, made by someone who may read the history: another's could say anything."""


@dataclass(frozen=True, slots=True)
class Switch:
    """The end of an earlier timeline, as far as a server has it.

    :param timeline: as the names of the log's files begin
    :param place: in the log
    """

    timeline: str
    place: str


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server at one planning.

    :param snapshot: of its transactions: which of them the planning could see
    :param xid: id of the next transaction
    :param timeline: of its write-ahead log; None if it may not be seen
    :param log: the end of that log
    :param history: of the timeline, oldest first; None if there is none or it may not be seen
    """

    snapshot: str
    xid: int
    timeline: str | None
    log: str | None
    history: Sequence[Switch] | None

    @property
    def branch(self) -> str | None:
        """Digest of the history: servers that began timelines of the same number apart from each other differ in it."""
        if self.history is None:
            return None
        return hashlib.sha256(repr([(item.timeline, item.place) for item in self.history]).encode()).hexdigest()[:16]

    def left(self, timeline: str) -> str | None:
        """Return the place at which the server's history left a timeline; None if that is not known."""
        return next((item.place for item in self.history or () if item.timeline == timeline), None)


def server_state(fetch: Fetch) -> ServerState:
    """Return the state of the server as it is now."""
    snapshot, xid, timeline, log = fetch(_SERVER, [])[0]
    return ServerState(snapshot, xid, timeline, log, _history(fetch) if timeline else None)


def reaches(place: str, other: str) -> bool:
    """Whether a place in the log is at or beyond another one."""
    return _number(place) >= _number(other)


def _history(fetch: Fetch) -> Sequence[Switch] | None:
    found = fetch(_FUNCTION_THERE, [])
    if found:
        rows = f"{quote(found[0][0])}.{FUNCTION}()"
    elif fetch(_MAY_READ_FILES, [])[0][0]:
        rows = f"({SWITCHES}) AS history"
    else:
        return None
    switches = fetch(f"SELECT timeline, switched::text FROM {rows}", [])
    return [Switch(f"{timeline:08X}", place) for timeline, place in switches] or None


def _number(place: str) -> int:
    high, low = place.split("/")
    return (int(high, 16) << 32) + int(low, 16)
