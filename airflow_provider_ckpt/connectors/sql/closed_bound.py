"""Find the closed bound: the position below which no new rows can appear in a table.

A row gets its number before it is committed, and with ``innodb_autoinc_lock_mode = 2`` even out of order. So a bound
(one past the greatest visible cursor value) is closed once all transactions that were running when the bound was
determined have ended. If running transactions cannot be seen, the bound counts as closed when ``source.close_wait`` has
passed. In SQLite, which has only one writer at a time, it is closed immediately.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.connectors.sql.columns import Kind
from airflow_provider_ckpt.connectors.sql.source_table import SourceTable
from airflow_provider_ckpt.connectors.sql.times import MICROSECONDS_A_DAY

_BEGINNING_SECONDS = 0.2
"""Seconds to wait before running transactions are listed.

A statement gets its number for the cursor a little before the server lists its transaction.
"""

_PAUSE_SECONDS = 0.1
_LAG_SECONDS = 1.0
"""Longest wait, in seconds, for a bound to close if planning only measures the lag."""

_WESTERNMOST_SECONDS = 12 * 3600
"""Number of seconds by which the westernmost time zone, in which a calendar day ends last, is behind UTC."""


@dataclass(frozen=True, slots=True)
class ClosedBound:
    """Result of waiting for a bound to close.

    :param bound: the newest closed bound; None if none has closed
    :param state: candidate that has not closed, with the transactions to wait for, as the next planning receives it;
        empty if there is none
    :param unseen: whether the running transactions could not be seen
    """

    bound: int | None
    state: Mapping[str, Any] = field(default_factory=dict)
    unseen: bool = False


def candidate(table: SourceTable, greatest: int | None) -> int | None:
    """Return a candidate for the closed bound: the position after the greatest one; None for an empty table.

    A coarse cursor (a date, or a time without microseconds) gives its present value to later rows, too. So if the
    greatest value is close to the present time, the candidate is the present day, or the greatest time itself.

    :param table: the source table
    :param greatest: the greatest visible position; None for an empty table
    """
    if greatest is None:
        return None
    cursor, now = table.cursor, int(time.time() * 1_000_000)
    if cursor.kind is Kind.DATE:
        today = (now // 1_000_000 - _WESTERNMOST_SECONDS) // 86_400 * MICROSECONDS_A_DAY
        if today <= greatest <= today + 2 * MICROSECONDS_A_DAY:
            return today
    elif cursor.kind in (Kind.DATETIME, Kind.TIMESTAMP) and cursor.fraction < 6:
        unit = int(10 ** (6 - cursor.fraction))
        if now - unit - 1_000_000 <= greatest <= now + 1_000_000:
            return greatest
    return greatest + 1


def wait_until_closed(
    table: SourceTable, noted: int | None, stored: Mapping[str, Any], close_wait: float, *, lag_only: bool
) -> ClosedBound:
    """Return the newest bound that has closed, after waiting for the running transactions to end.

    If these transactions do not end in time, the result is the candidate of the last planning, provided that the
    transactions it waited for have ended, else None. If transactions cannot be seen, the result is the new candidate,
    after the whole wait.

    :param table: the source table
    :param noted: the new candidate position, read just before this call; None for an empty table
    :param stored: :attr:`ClosedBound.state` of the last planning; may be empty
    :param close_wait: longest wait in seconds
    :param lag_only: whether the plan only serves to measure the lag; the wait is then at most 1 s
    """
    if noted is None or table.database.dialect.closes_at_once():
        return ClosedBound(noted)
    wait = min(close_wait, _LAG_SECONDS) if lag_only else close_wait
    deadline = time.monotonic() + wait
    time.sleep(min(_BEGINNING_SECONDS, wait))
    running = _running(table)
    if running is None:
        if not lag_only:
            time.sleep(max(0.0, deadline - time.monotonic()))
        return ClosedBound(noted, unseen=True)
    known = frozenset(stored.get("transactions", ()))
    bound = None
    if "candidate" in stored and not known & running:
        bound = stored["candidate"]
    waited_for = running
    while waited_for and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        now = _running(table)
        if now is None:
            continue
        waited_for &= now
        if bound is None and "candidate" in stored and not known & now:
            bound = stored["candidate"]
    if not waited_for:
        return ClosedBound(noted)
    if "candidate" in stored and bound is None:
        return ClosedBound(None, stored)
    return ClosedBound(bound, {"candidate": noted, "transactions": sorted(waited_for)})


def _running(table: SourceTable) -> frozenset[str] | None:
    with table.database.session(f"looking for transactions that may write to {table.label}") as connection:
        return table.database.dialect.running_transactions(connection)
