"""Handle late rows: rows that appear at positions below those that were read already.

A configuration that can produce late rows is refused, and late rows that have appeared fail the planning. With
``source.late_rows: recover`` both are warnings, since ``airflow ckpt recover`` is run for such rows anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.cursor_values import CursorValues
from airflow_provider_ckpt.connectors.postgres.lower_positions import Watch
from airflow_provider_ckpt.connectors.postgres.origin_tables import WRITTEN_ELSEWHERE, origin_columns, origins
from airflow_provider_ckpt.connectors.postgres.sequences import sequence_states
from airflow_provider_ckpt.connectors.postgres.source_witness import LateRowSign, Witness
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.source_protocol import (
    WITNESS,
    FindUnreceipted,
    Plan,
    PlanningAlarm,
    PlanRequest,
    SourceEvidence,
)
from airflow_provider_ckpt.core.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_ACCEPT_HINT = "write source.late_rows: recover if this is known and `airflow ckpt recover` is run for such rows."


class LateRows:
    """Checks for late rows of one pipeline, before they appear and at each planning."""

    def __init__(self, pipeline: Pipeline) -> None:
        assert pipeline.source.cursor is not None
        self._pipeline = pipeline.name
        self._cursor = pipeline.source.cursor
        self._known = pipeline.source.late_rows == "recover"
        self._sequences: dict[int, frozenset[int]] = {}

    def check(self, fetch: Fetch, table: Table) -> None:
        """Refuse a table whose new rows can get smaller positions, or whose rows are not written by transactions here.

        Foreign tables and materialised views are found at any depth below a view or among partitions.

        :raises ConfigError: with the name of what causes it
        """
        for item in origins(fetch, table):
            if item.kind in WRITTEN_ELSEWHERE:
                raise ConfigError(
                    f"{table.label} shows rows of {item.label}, a {WRITTEN_ELSEWHERE[item.kind]}, which cannot say "
                    "which of them "
                    "are new or still to be committed.",
                    pipeline=self._pipeline,
                    hint="Leave it out of the view or the partitions, or give its origin a pipeline of its own.",
                )
        values = CursorValues(fetch, table, self._cursor)
        self._sequences[table.oid] = values.sequence_oids
        for problem in values.problems():
            if not self._known:
                raise ConfigError(
                    problem.description, pipeline=self._pipeline, hint=f"{problem.correction}; or {_ACCEPT_HINT}"
                )
            self._warn(problem.description)

    def check_plan(self, fetch: Fetch, table: Table, request: PlanRequest, plan: Plan, greatest: int | None) -> Plan:
        """Check for late rows and return the plan with the witness for the next planning.

        :param fetch: runs a query
        :param table: the source
        :param request: the request that the plan answers
        :param plan: the plan
        :param greatest: the table's greatest position, read before the plan was made
        :raises SourceError: if positions below the plan were assigned since the last planning
        """
        tail = max((todo.start for todo in request.ranges if todo.needs_bound), default=None)
        if tail is None:
            return plan
        stored = request.states.get(table.label, {})
        before = _last_witness(stored, tail)
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
        now = watch.witness(before, tail, max(end, tail))
        unchanged = before is not None and not signs and before.is_equivalent(now)
        state = plan.states.get(table.label, {name: stored[name] for name in stored if name != WITNESS})
        witness = stored[WITNESS] if unchanged else now.to_json()
        return replace(plan, states={table.label: {**state, WITNESS: witness}})

    def watch(
        self,
        fetch: Fetch,
        table: Table,
        state: Mapping[str, Any],
        end: int,
        greatest: int | None,
        unread: FindUnreceipted | None,
    ) -> PlanningAlarm | None:
        """Return why the next planning would fail, and a new witness; see :meth:`WatchedSource.watch`.

        :param fetch: runs a query
        :param table: the source
        :param state: state that the last planning stored
        :param end: end position of its plan
        :param greatest: the table's greatest position, read before this call
        :param unread: finds positions without a receipt; None if receipts cannot be searched
        """
        before = _last_witness(state, end)
        if before is None or self._known:
            return None
        watch = self._watch(fetch, table, greatest)
        evidence = [self._evidence(sign, table, watch, unread) for sign in watch.signs(before)]
        left = [item for item in evidence if item.description]
        return PlanningAlarm(left, {WITNESS: watch.witness(before, end, end).to_json()}) if left else None

    def _evidence(
        self, sign: LateRowSign, table: Table, watch: Watch, unread: FindUnreceipted | None
    ) -> SourceEvidence:
        """Return the evidence of a sign, without rows that only moved, which have receipts; empty if nothing is left.

        :param sign: the sign
        :param table: the source
        :param watch: the observer that found the sign
        :param unread: finds positions without a receipt; None if receipts cannot be searched
        """
        rows = watch.rows(sign)
        left = unread(table.label, rows) if unread is not None and sign.moved and rows is not None else None
        if left is None:
            return SourceEvidence(sign.description, rows, sign.correction)
        if not left:
            log.info(
                "%s: %s All of them have a receipt: they were in another place before", self._pipeline, sign.description
            )
            return SourceEvidence("", ())
        ranges_text = "one range" if len(left) == 1 else f"{len(left)} ranges"
        description = (
            f"{sign.description} No receipt covers {ranges_text} of these positions, the first at {left[0].start}."
        )
        return SourceEvidence(description, left, sign.correction)

    def _watch(self, fetch: Fetch, table: Table, greatest: int | None) -> Watch:
        if table.oid not in self._sequences:  # looked up once in a run
            self._sequences[table.oid] = CursorValues(fetch, table, self._cursor).sequence_oids
        sequences = sequence_states(fetch, self._sequences[table.oid])
        return Watch(
            fetch,
            table,
            self._cursor,
            greatest=greatest,
            sequences=sequences,
            origins=origins(fetch, table),
            columns={item.relation: item.name for item in origin_columns(fetch, table, self._cursor)}
            if table.kind == "v"
            else {},
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
        log.warning("%s: %s source.late_rows says that this is known", self._pipeline, found)


def _resolution_hint(sign: LateRowSign, name: str) -> str:
    """Return the commands that resolve a sign of late rows, as text."""
    rewind_hint = f"`airflow ckpt rewind {name} --to-position N --reason …` reads everything from N on once more"
    if sign.condition is None:
        return (
            f"{rewind_hint}: choose N at or below the first position that was assigned again. `airflow ckpt recover "
            f"{name}` cannot see which rows took the place of others, so it does not end this."
        )
    return (
        f"`airflow ckpt recover {name}` reads what came at positions where nothing was read. If that accounts for all "
        f"such rows, planning continues; if not, its answer says why. {rewind_hint}, which is needed for rows below "
        "the low watermark, and for rows at positions that other rows had before."
    )


def _last_witness(state: Mapping[str, Any], tail: int) -> Witness | None:
    """Return the witness of the last planning; None if there is none or a rewind has made it obsolete."""
    before = Witness.from_json(state[WITNESS]) if WITNESS in state else None
    return None if before is None or tail < before.end else before
