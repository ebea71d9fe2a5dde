"""Detect that a source's server was restored, has lost data in a failover, or is another server than before."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from airflow_provider_ckpt.connectors.postgres.source_snapshot import LateRowSign, SourceSnapshot
from airflow_provider_ckpt.connectors.postgres.timelines import ServerState, is_at_or_beyond

log = logging.getLogger(__name__)


def restored_server_signs(now: ServerState, before: SourceSnapshot, label: str) -> Iterator[LateRowSign]:
    """Yield a sign if the server may have assigned positions again, to other rows, after a restore or failover.

    At most one sign is yielded.

    :param now: the server's present state
    :param before: the snapshot: the state that the last planning stored
    :param label: the source table's name, for the log
    """
    consequence = "positions that were read may have been assigned again, to other rows."
    if now.xid < before.xid:
        yield LateRowSign(f"its server went back in time, from transaction {before.xid} to {now.xid}: {consequence}")
    elif before.timeline and now.timeline and now.timeline != before.timeline:
        if lost := _lost_clause(now, before.timeline, before.log, label):
            yield LateRowSign(
                f"its server was restored or failed over, from timeline {before.timeline} to {now.timeline}, and "
                f"{lost}: {consequence}"
                + (
                    ""
                    if now.history
                    else " `airflow ckpt db roles source SCHEMA` prints a function by which the source's user can "
                    "look up where the timelines diverged; if nothing was lost, the next run then continues."
                )
            )
    elif before.branch and now.branch and now.branch != before.branch:
        yield LateRowSign(
            f"its server is another one, which started timeline {now.timeline} independently: {consequence}"
        )
    elif now.log and before.log and not is_at_or_beyond(now.log, before.log):
        yield LateRowSign(f"its server's log went back, from {before.log} to {now.log}: {consequence}")


def _lost_clause(now: ServerState, timeline: str, end: str | None, label: str) -> str:
    """Return the part of an error message about changes on an earlier timeline that the server may have lost.

    For example: ``the history of the new timeline does not contain 00000003``. Return an empty text if the server still
    has everything that the last planning could see.

    :param now: the server's present state
    :param timeline: the server's timeline at the last planning
    :param end: end of the write-ahead log at that time (LSN); None if it is not known
    :param label: the source table's name, for the log
    """
    if not now.history:
        return "it is not known whether it still has all rows that were read"
    lsn = now.end_of(timeline)
    if lsn is None or end is None:
        return f"the history of the new timeline does not contain {timeline}"
    if not is_at_or_beyond(lsn, end):
        return f"they diverged at {lsn}, before {end}, which the log had reached when the source was last read"
    log.info(
        "the server of %s failed over from timeline %s to %s at %s, and still has all rows that were read, up to %s",
        label,
        timeline,
        now.timeline,
        lsn,
        end,
    )
    return ""
