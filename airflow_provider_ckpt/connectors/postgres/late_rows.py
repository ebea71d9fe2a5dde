"""Rows that come below what was read of a table: refused where they are bound to come, told where they have come.

``source.late_rows: recover`` makes warnings of both, since ``airflow ckpt recover`` is run for such rows anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.cursor_values import CursorValues
from airflow_provider_ckpt.connectors.postgres.origin_tables import UNDATED, origin_columns, origins
from airflow_provider_ckpt.connectors.postgres.sequences import sequence_states
from airflow_provider_ckpt.connectors.postgres.source_witness import Sign, Witness
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.postgres.watch import Watch
from airflow_provider_ckpt.connectors.protocols import Alarm, Plan, PlanRequest, Told, Unread
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.recovery import WITNESS

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_KNOWN = "write source.late_rows: recover if this is known and `airflow ckpt recover` is run for such rows."


class LateRows:
    """Handling of late rows for one pipeline: checks before they come, errors or warnings once they have."""

    def __init__(self, pipeline: Pipeline) -> None:
        assert pipeline.source.cursor is not None
        self._pipeline = pipeline.name
        self._cursor = pipeline.source.cursor
        self._known = pipeline.source.late_rows == "recover"
        self._sequences: dict[int, frozenset[int]] = {}

    def check(self, fetch: Fetch, table: Table) -> None:
        """Refuse what is bound to give out smaller positions, and rows that come from elsewhere.

        Rows of a foreign table or a materialised view are found however deep they lie below a view or among partitions.

        :raises ConfigError: naming it
        """
        for item in origins(fetch, table):
            if item.kind in UNDATED:
                raise ConfigError(
                    f"{table.label} shows rows of {item.label}, a {UNDATED[item.kind]}, which cannot say which of them "
                    "are new or still to be committed.",
                    pipeline=self._pipeline,
                    hint="Leave it out of the view or the partitions, or give its origin a pipeline of its own.",
                )
        values = CursorValues(fetch, table, self._cursor)
        self._sequences[table.oid] = values.sequence_oids
        for problem in values.problems():
            if not self._known:
                raise ConfigError(problem.seen, pipeline=self._pipeline, hint=f"{problem.remedy}; or {_KNOWN}")
            self._warn(problem.seen)

    def watched(self, fetch: Fetch, table: Table, request: PlanRequest, plan: Plan, greatest: int | None) -> Plan:
        """A plan, with what the next planning compares with.

        :param request: what it was made for
        :param greatest: the table's greatest position, noted before it was made
        :raises SourceError: if positions below it were given out since the last planning
        """
        tail = max((todo.start for todo in request.todo if todo.asks_bound), default=None)
        if tail is None:
            return plan
        kept = request.states.get(table.label, {})
        before = _seen(kept, tail)
        watch = self._watch(fetch, table, greatest)
        signs = [] if before is None else list(watch.signs(before))
        for sign in signs:
            seen = self._left(sign, table, watch, request.unread).seen if sign.moved else sign.seen
            if seen:
                self._tell(replace(sign, seen=seen), table, tail)
        end = max((batch.range.end for batch in plan.batches), default=tail)
        now = watch.witness(before, tail, max(end, tail))
        unchanged = before is not None and not signs and before.same(now)
        state = plan.states.get(table.label, {name: kept[name] for name in kept if name != WITNESS})
        witness = kept[WITNESS] if unchanged else now.to_json()
        return replace(plan, states={table.label: {**state, WITNESS: witness}})

    def watch(
        self,
        fetch: Fetch,
        table: Table,
        state: Mapping[str, Any],
        end: int,
        greatest: int | None,
        unread: Unread | None,
    ) -> Alarm | None:
        """Return why the next planning would fail, and a new witness; see :meth:`WatchedSource.watch`.

        :param fetch: runs a query
        :param table: the source
        :param state: what the last planning kept
        :param end: the end of its plan
        :param greatest: the table's greatest position, noted before this call
        :param unread: asks the receipts; None if nobody can
        """
        before = _seen(state, end)
        if before is None or self._known:
            return None
        watch = self._watch(fetch, table, greatest)
        told = [self._left(sign, table, watch, unread) for sign in watch.signs(before)]
        left = [item for item in told if item.seen]
        return Alarm(left, {WITNESS: watch.witness(before, end, end).to_json()}) if left else None

    def _left(self, sign: Sign, table: Table, watch: Watch, unread: Unread | None) -> Told:
        """Return what a sign tells of beyond rows that only moved, each of which has a receipt; no words if nothing.

        :param sign: what was seen
        :param table: the source
        :param watch: which has seen it
        :param unread: asks the receipts; None if nobody can
        """
        rows = watch.rows(sign)
        left = unread(table.label, rows) if unread is not None and sign.moved and rows is not None else None
        if left is None:
            return Told(sign.seen, rows, sign.remedy)
        if not left:
            log.info("%s: %s All of them have a receipt: they were elsewhere before", self._pipeline, sign.seen)
            return Told("", ())
        stretches = "one stretch" if len(left) == 1 else f"{len(left)} stretches"
        kept = f"{sign.seen} Of those no receipt has, {stretches} of positions, the first of them {left[0].start}."
        return Told(kept, left, sign.remedy)

    def _watch(self, fetch: Fetch, table: Table, greatest: int | None) -> Watch:
        if table.oid not in self._sequences:  # looked up once a run
            self._sequences[table.oid] = CursorValues(fetch, table, self._cursor).sequence_oids
        sequences = sequence_states(fetch, self._sequences[table.oid])
        return Watch(
            fetch,
            table,
            self._cursor,
            top=greatest,
            sequences=sequences,
            origins=origins(fetch, table),
            columns={item.relation: item.name for item in origin_columns(fetch, table, self._cursor)}
            if table.kind == "v"
            else {},
        )

    def _tell(self, sign: Sign, table: Table, tail: int) -> None:
        found = f"{table.label}, cursor {self._cursor}: {sign.seen}"
        if self._known:
            self._warn(found)
            return
        name, first = self._pipeline, f"First {sign.remedy}. Then " if sign.remedy else ""
        raise SourceError(
            found,
            pipeline=name,
            position=tail,
            hint=f"{first}{_ways(sign, name)} Or {_KNOWN}",
        )

    def _warn(self, found: str) -> None:
        log.warning("%s: %s source.late_rows says that this is known", self._pipeline, found)


def _ways(sign: Sign, name: str) -> str:
    """Describe what ends an alarm."""
    again = f"`airflow ckpt rewind {name} --to-position N --reason …` reads everything from N on once more"
    if sign.where is None:
        return (
            f"{again}: choose N at or below the first position that was given out again. `airflow ckpt recover {name}` "
            "cannot see which rows took the place of others, so it does not end this."
        )
    return (
        f"`airflow ckpt recover {name}` reads what came at positions where nothing was read. If that accounts for all "
        f"such rows, planning goes on; if not, its answer says why. {again}, which is what rows need that lie below "
        "the low watermark, or whose positions others had before them."
    )


def _seen(state: Mapping[str, Any], tail: int) -> Witness | None:
    """Return the witness of the last planning; None if there is none, or a rewind has made it obsolete."""
    before = Witness.from_json(state[WITNESS]) if WITNESS in state else None
    return None if before is None or tail < before.end else before
