"""Refuse late rows: rows that appear at positions that were planned already.

A table or cursor that can produce late rows is refused, and late rows that have appeared make the planning fail. With
``source.late_rows: recover`` both are only logged as warnings, and users run ``airflow ckpt recover`` to have late rows
read. Foreign tables and materialised views are refused even with this setting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.late_row_causes import LateRowCauses
from airflow_provider_ckpt.connectors.postgres.late_row_detection import LateRowSearch
from airflow_provider_ckpt.connectors.postgres.origin_tables import WRITTEN_ELSEWHERE, origin_columns, origins
from airflow_provider_ckpt.connectors.postgres.sequence_catalog import sequence_states
from airflow_provider_ckpt.connectors.postgres.source_snapshot import LateRowSign, SourceSnapshot
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.source_plan import SNAPSHOT, FindUnreceipted, Plan, PlanRequest
from airflow_provider_ckpt.connectors.source_protocol import PlanningAlarm, SourceEvidence
from airflow_provider_ckpt.core.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_ACCEPT_HINT = "write source.late_rows: recover to get a warning instead, and run `airflow ckpt recover` for such rows."


class LateRows:
    """Checks of one pipeline's source for late rows.

    :meth:`check` refuses a table that can produce late rows; :meth:`check_plan` and :meth:`watch` detect late rows that
    have appeared. The object caches the sequences that fill the cursor, so that a run looks them up once.

    :param pipeline: the pipeline; ``source.late_rows`` decides whether a finding is an error or a warning
    """

    def __init__(self, pipeline: Pipeline) -> None:
        source = PostgresSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._cursor = source.cursor
        self._known = source.late_rows == "recover"
        self._follows_columns = pipeline.schema_ is not None
        self._sequences: dict[int, frozenset[int]] = {}

    def check(self, fetch: Fetch, table: Table) -> None:
        """Refuse a table whose new rows can get smaller positions, or whose rows are written outside this database.

        Foreign tables and materialised views are found at any depth below a view or among partitions. With
        ``source.late_rows: recover`` only these are refused; all other causes are logged as warnings.

        :param fetch: runs a query on the source database and returns its rows
        :param table: the source table or view
        :raises ConfigError: with the cause, such as the sequence, the trigger or the foreign table
        """
        for item in origins(fetch, table):
            if item.kind in WRITTEN_ELSEWHERE:
                raise ConfigError(
                    f"{table.label} shows rows of {item.label}, a {WRITTEN_ELSEWHERE[item.kind]}, whose new and "
                    "uncommitted rows cannot be detected.",
                    pipeline=self._pipeline,
                    hint="Exclude it from the view or the partitions, or read the table behind it in another pipeline.",
                )
        causes = LateRowCauses(fetch, table, self._cursor)
        self._sequences[table.oid] = causes.sequence_oids
        for cause in causes.find():
            if not self._known:
                raise ConfigError(
                    cause.description, pipeline=self._pipeline, hint=f"{cause.correction}; or {_ACCEPT_HINT}"
                )
            self._warn(cause.description)

    def check_plan(self, fetch: Fetch, table: Table, request: PlanRequest, plan: Plan, greatest: int | None) -> Plan:
        """Check for late rows, and add a snapshot of the source to the plan.

        The snapshot is the state of the table and its server (see :class:`~.source_snapshot.SourceSnapshot`) that the
        next planning compares with the state at that time.

        :param fetch: runs a query on the source database and returns its rows
        :param table: the source table or view
        :param request: the request that the plan answers, with the snapshot of the last planning
        :param plan: the plan
        :param greatest: the table's greatest position, read before the plan was made; None if the table is empty
        :return: the plan with the new snapshot in its states; unchanged if the request contains only gaps to be planned
            again, and no range without an end
        :raises SourceError: if there is a sign that rows got positions below the end of the last plan since it was made
        """
        tail = max((todo.start for todo in request.ranges if todo.needs_bound), default=None)
        if tail is None:
            return plan
        stored = request.states.get(table.label, {})
        before = _last_snapshot(stored, tail)
        watch = self._watch(fetch, table, greatest)
        signs = [] if before is None else list(watch.signs(before))
        for sign in signs:
            description = (
                self._evidence(sign, table, watch, request.find_unreceipted).description
                if sign.moved
                else sign.description
            )
            if description:
                self._error(replace(sign, description=description), table, tail)
        end = max((batch.range.end for batch in plan.batches), default=tail)
        now = watch.take_snapshot(before, tail, max(end, tail))
        unchanged = before is not None and not signs and before.is_equivalent(now)
        state = plan.states.get(table.label, {name: stored[name] for name in stored if name != SNAPSHOT})
        snapshot = stored[SNAPSHOT] if unchanged else now.to_json()
        return replace(plan, states={table.label: {**state, SNAPSHOT: snapshot}})

    def watch(
        self,
        fetch: Fetch,
        table: Table,
        state: Mapping[str, Any],
        end: int,
        greatest: int | None,
        unread: FindUnreceipted | None,
    ) -> PlanningAlarm | None:
        """Return the signs of late rows that would make the next planning fail, with a new snapshot of the source.

        Return None if the next planning would not fail for late rows, as with ``source.late_rows: recover``. See
        :meth:`WatchedSource.watch`.

        :param fetch: runs a query on the source database and returns its rows
        :param table: the source table or view
        :param state: values that the last planning stored in the ledger for the table
        :param end: end of the plan: all positions before it were planned
        :param greatest: the table's greatest position, read before this call; None if the table is empty
        :param unread: function that finds records without a receipt; None if receipts cannot be searched
        """
        before = _last_snapshot(state, end)
        if before is None or self._known:
            return None
        watch = self._watch(fetch, table, greatest)
        evidence = [self._evidence(sign, table, watch, unread) for sign in watch.signs(before)]
        left = [item for item in evidence if item.description]
        return PlanningAlarm(left, {SNAPSHOT: watch.take_snapshot(before, end, end).to_json()}) if left else None

    def _evidence(
        self, sign: LateRowSign, table: Table, watch: LateRowSearch, unread: FindUnreceipted | None
    ) -> SourceEvidence:
        """Return the evidence that a sign of late rows gives the user: a description, and the ranges of the late rows.

        If the rows may only have moved from another partition or table (``sign.moved``), the rows whose positions have
        a receipt were read before, and are left out. If all rows were read before, the description is empty.

        :param sign: the sign
        :param table: the source table or view
        :param watch: the search that found the sign
        :param unread: function that finds records without a receipt; None if receipts cannot be searched
        """
        rows = watch.rows(sign)
        left = unread(table.label, rows) if unread is not None and sign.moved and rows is not None else None
        if left is None:
            return SourceEvidence(sign.description, rows, sign.correction)
        if not left:
            log.info(
                "%s: %s The position of each of these rows has a receipt, so they were read before, in another table "
                "or partition; none is missing",
                self._pipeline,
                sign.description,
            )
            return SourceEvidence("", ())
        ranges_text = "one range" if len(left) == 1 else f"{len(left)} ranges"
        description = (
            f"{sign.description} No receipt covers {ranges_text} of these positions, the first at {left[0].start}."
        )
        return SourceEvidence(description, left, sign.correction)

    def _watch(self, fetch: Fetch, table: Table, greatest: int | None) -> LateRowSearch:
        if table.oid not in self._sequences:  # looked up once in a run
            self._sequences[table.oid] = LateRowCauses(fetch, table, self._cursor).sequence_oids
        sequences = sequence_states(fetch, self._sequences[table.oid])
        return LateRowSearch(
            fetch,
            table,
            self._cursor,
            greatest=greatest,
            sequences=sequences,
            origins=origins(fetch, table),
            columns={item.relation: item.name for item in origin_columns(fetch, table, self._cursor)}
            if table.kind == "v"
            else {},
            follows_columns=self._follows_columns,
        )

    def _error(self, sign: LateRowSign, table: Table, tail: int) -> None:
        found = f"{table.label}, cursor {self._cursor}: {sign.description}"
        if self._known:
            self._warn(found)
            return
        name, first = self._pipeline, f"First {sign.correction}. Then " if sign.correction else ""
        raise SourceError(
            found,
            pipeline=name,
            position=tail,
            hint=f"{first}{_resolution_hint(sign, name)} Or {_ACCEPT_HINT}",
        )

    def _warn(self, found: str) -> None:
        log.warning("%s: %s The run continues because of source.late_rows: recover", self._pipeline, found)


def _resolution_hint(sign: LateRowSign, name: str) -> str:
    """Return the text of a hint with the commands that resolve a sign of late rows.

    :param sign: the sign
    :param name: name of the pipeline
    """
    rewind_hint = f"`airflow ckpt rewind {name} --to-position N --reason …` reads all rows from position N on again"
    if sign.condition is None:
        return (
            f"{rewind_hint}: choose N at or below the first position that was assigned again. `airflow ckpt recover "
            f"{name}` cannot detect which rows replaced others, so it does not resolve this."
        )
    return (
        f"`airflow ckpt recover {name}` reads rows at positions where nothing was read before. If these are all late "
        f"rows, planning continues; if not, its output says why. {rewind_hint}, which is needed for rows below the low "
        "watermark, and for rows at positions that other rows had before."
    )


def _last_snapshot(state: Mapping[str, Any], tail: int) -> SourceSnapshot | None:
    """Return the snapshot of the source that the last planning stored; None if absent or obsolete after a rewind.

    :param state: values that the last planning stored in the ledger for the table
    :param tail: position from which new rows are planned; after a rewind it may be below the end of the last plan
    """
    before = SourceSnapshot.from_json(state[SNAPSHOT]) if SNAPSHOT in state else None
    return None if before is None or tail < before.end else before
