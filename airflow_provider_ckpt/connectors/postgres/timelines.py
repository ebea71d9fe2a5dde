"""Read the timeline history of a PostgreSQL server's write-ahead log, to detect a failover or restore that lost data.

A standby that is promoted starts a new timeline. Its history file contains the log positions (LSN) at which earlier
timelines ended. An ordinary user cannot read this file; the function that ``airflow ckpt db roles source`` prints
returns these positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch

HISTORY_FUNCTION = "ckpt_timeline_history"
"""Name of the function that returns the timeline history to an ordinary user."""

READ_FILE = "pg_catalog.pg_read_file(text, bigint, bigint, boolean)"

TIMELINE_ENDS = r"""
SELECT line[1]::pg_catalog.int8 AS timeline, line[2]::pg_catalog.pg_lsn AS switched
FROM pg_catalog.regexp_matches(
    pg_catalog.pg_read_file(
        CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN
            'pg_wal/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
            || '.history' END,
        0, 1048576, true),
    '^(\d+)\t(\S+)', 'gn') AS line
"""
"""Query of the server's earlier timelines, each with the log position (LSN) at which it ended.

It returns no rows if the server's timeline has no history.
"""

_SERVER = """
SELECT pg_catalog.txid_current_snapshot()::text, pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
       CASE WHEN logs THEN substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END,
       CASE WHEN logs THEN pg_catalog.pg_current_wal_insert_lsn()::text END
FROM (SELECT NOT pg_catalog.pg_is_in_recovery()
          AND pg_catalog.has_function_privilege('pg_catalog.pg_walfile_name(pg_lsn)', 'EXECUTE') AS logs) AS server
"""
_MAY_READ_FILES = f"SELECT pg_catalog.has_function_privilege('{READ_FILE}', 'EXECUTE')"
_FUNCTION_SCHEMA = f"""
SELECT n.nspname::text FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = '{HISTORY_FUNCTION}' AND p.pronargs = 0 AND p.prosecdef
  AND pg_catalog.has_function_privilege(p.proowner, '{READ_FILE}', 'EXECUTE')
  AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
ORDER BY n.nspname LIMIT 1
"""
"""Query of a schema with the function :data:`HISTORY_FUNCTION`, which reads the server's timeline history files.

It finds only a function whose owner may read files of the server, since one of any other owner is not trusted.
"""


@dataclass(frozen=True, slots=True)
class TimelineEnd:
    """End of an earlier timeline in a server's history.

    :param timeline: the timeline as 8 hexadecimal digits, the prefix of log file names
    :param lsn: position in the write-ahead log at which the timeline ended (LSN)
    """

    timeline: str
    lsn: str


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a source's server at one planning.

    :param snapshot: snapshot of the server's transactions, as text; it tells which transactions the planning can see
    :param xid: id of the next transaction
    :param timeline: timeline of the write-ahead log; None if the user may not read it
    :param log: end of that log (LSN); None if the user may not read it
    :param history: earlier timelines, oldest first; None if there are none or the user may not read them
    """

    snapshot: str
    xid: int
    timeline: str | None
    log: str | None
    history: Sequence[TimelineEnd] | None

    @property
    def branch(self) -> str | None:
        """Digest of the history of timelines; None if the history is not known.

        It differs between servers that started a timeline of the same number independently.
        """
        if self.history is None:
            return None
        return hashlib.sha256(repr([(item.timeline, item.lsn) for item in self.history]).encode()).hexdigest()[:16]

    def end_of(self, timeline: str) -> str | None:
        """Return the LSN at which an earlier timeline ended; None if it is not known.

        :param timeline: the timeline as 8 hexadecimal digits
        """
        return next((item.lsn for item in self.history or () if item.timeline == timeline), None)


def server_state(fetch: Fetch) -> ServerState:
    """Return the present state of the source's server.

    :param fetch: runs a query on the source database and returns its rows
    """
    snapshot, xid, timeline, log = fetch(_SERVER, [])[0]
    return ServerState(snapshot, xid, timeline, log, _history(fetch) if timeline else None)


def is_at_or_beyond(lsn: str, other: str) -> bool:
    """Return whether a position in the write-ahead log (LSN) is equal to or greater than another.

    :param lsn: the position
    :param other: the position to compare with
    """
    return _parse_lsn(lsn) >= _parse_lsn(other)


def _history(fetch: Fetch) -> Sequence[TimelineEnd] | None:
    found = fetch(_FUNCTION_SCHEMA, [])
    if found:
        rows = f"{quote(found[0][0])}.{HISTORY_FUNCTION}()"
    elif fetch(_MAY_READ_FILES, [])[0][0]:
        rows = f"({TIMELINE_ENDS}) AS history"
    else:
        return None
    switches = fetch(f"SELECT timeline, switched::text FROM {rows}", [])
    return [TimelineEnd(f"{timeline:08X}", lsn) for timeline, lsn in switches] or None


def _parse_lsn(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
