"""Detect late rows that have appeared, by signs such as a sequence that went back or is behind the checkpoint.

A row is late if it got a position below the end of the last plan after that plan was made.

No later plan contains this position, so a run that may have missed late rows must not succeed. First, the search looks
for signs of late rows in the catalog (a sequence behind the checkpoint, rewritten files, added partitions) and in the
greatest row, which is cheap. It reads other rows only if there is a sign. A row counts as late if its position is below
the end of the last plan and the last planning could not see the transaction that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from airflow_provider_ckpt.connectors.postgres.client import literal, quote
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind, position_sql, value_sql
from airflow_provider_ckpt.connectors.postgres.origin_tables import Origin, newly_attached
from airflow_provider_ckpt.connectors.postgres.restored_server import restored_server_signs
from airflow_provider_ckpt.connectors.postgres.sequence_catalog import SequenceState
from airflow_provider_ckpt.connectors.postgres.source_snapshot import LateRowSign, SourceSnapshot
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.postgres.timelines import server_state
from airflow_provider_ckpt.core.ranges import Range

_MAY_READ = "SELECT pg_catalog.has_table_privilege({0}::oid, 'SELECT')"

_WRITTEN = """
(txid_snapshot_xmax(txid_current_snapshot()) - 1 - (
    (txid_snapshot_xmax(txid_current_snapshot()) - 1 - {row}.xmin::text::bigint) % 4294967296 + 4294967296
) % 4294967296)
"""
"""SQL expression of the 64-bit id of the transaction that wrote a row; the row's ``xmin`` has its lower 32 bits."""

_WRITTEN_BY_ALTER = """
t.xmin::text IN (
    SELECT a.xmin::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.tableoid AND a.attnum > 0
)
"""
"""SQL condition for rows ``t`` that were written by the transaction that altered a column of their table."""

_MAX_RANGES = 200_000
"""Greatest number of ranges that :meth:`LateRowSearch.rows` returns; if there are more, it returns None."""

_MAX_COUNTED = 1000
"""Number at which the counting of late rows stops; a message then says ``1000 rows or more``."""


class LateRowSearch:
    """Search for signs of late rows in one table or view, at one planning.

    The constructor queries the state of the server; the state of the table is passed by the parameters.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the source table or view
    :param cursor: the cursor column's name
    :param greatest: the table's greatest position, None if it is empty; must be read before ``sequences``, so that a
        sequence that advanced in between does not seem to be behind the table
    :param sequences: current state of the sequences that fill the cursor
    :param origins: the relations from which the table's rows come: itself, partitions, children, relations below a view
    :param follows_columns: whether the run looks for changes of columns itself, so that rows which an ALTER TABLE has
        rewritten are not late
    :param columns: for a view: by oid of these relations, the name of the column whose values the view shows as the
        cursor; empty for a table
    """

    def __init__(
        self,
        fetch: Fetch,
        table: Table,
        cursor: str,
        *,
        greatest: int | None,
        sequences: Sequence[SequenceState],
        origins: Sequence[Origin],
        columns: Mapping[int, str],
        follows_columns: bool,
    ) -> None:
        self._fetch = fetch
        self._table = table
        self._cursor = quote(cursor)
        self._kind = CursorKind(table.by_name[cursor].base_type)
        self._greatest = greatest
        self._sequences = sequences
        self._origins = origins
        self._columns = columns
        self._follows_columns = follows_columns
        self._server_state = server_state(fetch)

    def take_snapshot(self, before: SourceSnapshot | None, tail: int, end: int) -> SourceSnapshot:
        """Return a snapshot of the table and its server as they are now.

        The plan stores this snapshot, and the next planning compares it with the state at that time.

        :param before: the snapshot of the source that the last planning stored in this generation; None if there is
            none
        :param tail: position from which this planning looked for new rows
        :param end: end of the plan: all positions before it are planned
        """
        known = {} if before is None else before.sequences
        return SourceSnapshot(
            end=end,
            reached=end > tail
            or bool(before and before.reached)
            or (self._greatest is not None and self._greatest >= tail - 1),
            top=self._greatest,
            transactions=self._server_state.snapshot,
            xid=self._server_state.xid,
            timeline=self._server_state.timeline,
            log=self._server_state.log,
            sequences={
                item.oid: (item.last, item.file, known.get(item.oid, (None, 0, False))[2] or self._leads(item))
                for item in self._sequences
            },
            files={item.oid: item.file for item in self._origins},
            branch=self._server_state.branch,
            attached={item.oid: list(item.attached) for item in self._origins if item.attached},
        )

    def signs(self, before: SourceSnapshot) -> Iterator[LateRowSign]:
        """Yield the signs that rows have got positions below the end of the last plan since that planning.

        Before a plan has reached the table's greatest position, only signs of a restored server are searched for.

        :param before: the snapshot of the source that the last planning stored
        """
        yield from restored_server_signs(self._server_state, before, self._table.label)
        if not before.reached:
            return
        for sequence in self._sequences:
            yield from self._sequence_signs(sequence, before)
        yield from self._greatest_row_signs(before)
        yield from self._relation_signs(before)

    def rows(self, sign: LateRowSign) -> list[Range] | None:
        """Return the positions of the late rows that a sign stands for, as ranges; the rows are read to find them.

        Return None if these rows cannot be identified, or are in more than :data:`_MAX_RANGES` ranges.

        :param sign: a sign that :meth:`signs` yielded
        """
        if sign.condition is None:
            return None
        relation, more = self._relation(sign.origin)
        position = f"SELECT DISTINCT {position_sql(self._kind, self._cursor)} AS p FROM {relation} AS t"
        placed = f"SELECT p, p::numeric - row_number() OVER (ORDER BY p) AS stretch FROM ({position} WHERE "
        found = self._fetch(
            f"SELECT min(p), max(p) + 1 FROM ({placed}{sign.condition}{more}) AS late) AS placed "
            f"GROUP BY stretch ORDER BY 1 LIMIT {_MAX_RANGES + 1}",
            [],
        )
        return None if len(found) > _MAX_RANGES else [Range(start, end) for start, end in found]

    def _sequence_signs(self, now: SequenceState, before: SourceSnapshot) -> Iterator[LateRowSign]:
        """Yield signs that a sequence went back, was restarted, or assigned values below the end of the last plan.

        A sequence whose newest value is below the table's greatest position is a sign, too: no row is late yet, but the
        next values of the sequence would be below the end of the next plan.

        :param now: present state of the sequence
        :param before: the snapshot of the source that the last planning stored
        """
        last, file, reached_end = before.sequences.get(now.oid, (None, now.file, False))
        newest = now.last
        block = max(now.step, 1) - 1
        greatest = f"SELECT max({self._cursor}) FROM {self._table.sql}"
        raise_it = f"raise the sequence, SELECT setval({literal(now.name)}, ({greatest}))"
        behind = newest is not None and newest + block < before.end - 1
        if not now.readable:
            return
        if last is not None and (newest is None or newest < last):
            back = "its beginning" if newest is None else str(newest)
            yield LateRowSign(
                f"sequence {now.name} went back from {last} to {back}, so it assigns values that were read."
            )
        elif newest is None:
            return
        elif file != now.file and self._is_greatest_row_late(before):
            yield LateRowSign(
                f"sequence {now.name} was restarted or altered, and rows below the checkpoint were written since."
            )
        elif (last is None and (behind or self._has_readable_xids)) or (
            last is not None and last < newest and last + block < before.end - 1
        ):
            where = self._since(before, last, min(newest + block, before.end - 1), now.start)
            count = self._count(where)
            if count:
                yield LateRowSign(
                    f"sequence {now.name}, which is at {newest}, was behind the checkpoint, and {_number(count)} "
                    "came below it at values that the sequence assigned since.",
                    raise_it,
                    where,
                    moved=now.oid not in before.sequences and not (behind and self._has_readable_xids),
                )
        ahead = self._greatest is not None and self._greatest >= before.end and (newest or 0) + block < self._greatest
        if reached_end and ahead:
            yield LateRowSign(
                f"position {self._greatest} is ahead of sequence {now.name}, which is at {now.last}: once that row is "
                "read, all rows that the sequence numbers up to there would be skipped. Nothing is lost yet.",
                f"{raise_it}, or delete that row",
                "false",
            )

    def _since(self, before: SourceSnapshot, above: int | None, up_to: int, start: int) -> str:
        """Return the SQL condition for rows that appeared since the last planning at values that a sequence assigned.

        :param before: the snapshot of the source that the last planning stored
        :param above: the newest value of the sequence at that time; None if it had assigned none
        :param up_to: the greatest position to include
        :param start: first value of the sequence, the smallest value to include if ``above`` is None and rows do not
            show which transaction wrote them
        """
        span = f"{self._cursor} <= {self._value(up_to)}"
        dated = self._has_readable_xids
        if above is not None:
            span = f"{self._cursor} > {self._value(above)} AND {span}"
        elif not dated:
            span = f"{self._cursor} >= {self._value(start)} AND {span}"
        return f"{span} AND {self._unseen_condition(before)}" if dated else span

    def _greatest_row_signs(self, before: SourceSnapshot) -> Iterator[LateRowSign]:
        """Yield a sign if the table's greatest row is late: below the last plan's end, and written after that plan.

        If rows do not show which transaction wrote them, the evidence is that the greatest position has fallen, and a
        relation of the table has a new file, as after TRUNCATE.

        :param before: snapshot of the source at the last planning
        """
        if self._greatest is None or self._greatest >= before.end - 1 or self._rows_only_removed(before):
            return
        if self._has_readable_xids:
            late = (
                self._count(f"{self._cursor} = {self._value(self._greatest)} AND {self._unseen_condition(before)}") > 0
            )
        else:
            emptied = any(before.files.get(item.oid, item.file) != item.file for item in self._origins)
            late = emptied and before.top is not None and self._greatest < before.top
        if late:
            yield LateRowSign(
                f"its greatest position is {self._greatest}, below the checkpoint, and the row there was written after "
                "the last planning."
            )

    def _rows_only_removed(self, before: SourceSnapshot) -> bool:
        """Return whether a sequence proves that the greatest position fell only because rows were removed.

        A sequence proves this if its next value is not below the end of the last plan.

        :param before: snapshot of the source at the last planning
        """
        return any(
            item.last is not None and item.last + max(item.step, 1) - 1 >= before.end - 1 for item in self._sequences
        )

    def _relation_signs(self, before: SourceSnapshot) -> Iterator[LateRowSign]:
        """Yield signs of late rows in partitions and children that were added or attached again, or were rewritten.

        If a relation that the last planning knew is absent now, an added one may have replaced it, with other rows at
        the same positions.

        :param before: the snapshot of the source that the last planning stored
        """
        replaced = bool(set(before.files) - {item.oid for item in self._origins})
        attached = newly_attached(self._origins, before.attached)
        for item in self._origins:
            if item.kind in ("p", "v"):
                continue
            if item.oid not in before.files:
                where, origin = self._condition_below(before, item)
                if where and self._count(where, origin):
                    description = f"{item.label} was added to it, with rows below the checkpoint."
                    yield LateRowSign(description, condition=where, origin=origin, moved=not replaced)
                continue
            if item.oid in attached:
                where, origin = self._condition_below(before, item, since=True)
                if where and self._count(where, origin):
                    description = f"{item.label} was detached and attached again, with rows below the checkpoint."
                    yield LateRowSign(description, condition=where, origin=origin, moved=not replaced)
            if item.file != before.files[item.oid] and self._is_greatest_row_late(before, item):
                yield LateRowSign(
                    f"all rows of {item.label} were removed or rewritten since the last planning, as TRUNCATE and "
                    "some forms of ALTER TABLE do, and there are rows below the checkpoint."
                )

    def _condition_below(
        self, before: SourceSnapshot, item: Origin, *, since: bool = False
    ) -> tuple[str, Origin | None]:
        """Return an SQL condition for the rows of a relation below the end of the last plan, and the relation to query.

        If the source is a view, it may exclude some of the relation's rows, so the view is queried. The condition is
        an empty text if the relation's rows cannot be identified in the view.

        :param before: the snapshot of the source that the last planning stored
        :param item: the relation
        :param since: whether to select only rows that were written since the last planning, if rows show that
        :return: the condition, and the relation to query: ``item``, or None for the source view as a whole
        """
        end = self._value(before.end)
        since_condition = f" AND {self._unseen_condition(before)}" if since else ""
        if self._table.kind != "v":
            return f"{self._cursor} < {end}{since_condition if self._has_readable_xids else ''}", item
        column = self._column(item)
        late = f"SELECT {column} FROM {item.sql} AS t WHERE {column} < {end}{since_condition}"
        return (f"{self._cursor} IN ({late})" if column else ""), None

    def _column(self, item: Origin) -> str | None:
        """Return, as SQL, the column of a relation below a view that the view shows as the cursor.

        Return None if the view shows no such column, or the user may not read the relation.

        :param item: the relation
        """
        name = self._columns.get(item.oid)
        return quote(name) if name is not None and self._fetch(_MAY_READ, [item.oid])[0][0] else None

    def _is_greatest_row_late(self, before: SourceSnapshot, item: Origin | None = None) -> bool:
        """Return whether the greatest row below the end of the last plan was written after the last planning.

        If the rows below a view cannot be read, a sequence that was restarted since then counts as evidence. Return
        False if the rows do not show which transaction wrote them.

        :param before: the snapshot of the source that the last planning stored
        :param item: the relation to search; None for the source table or view as a whole
        """
        column, relation, more = self._cursor, *self._relation(item)
        if self._table.kind == "v":
            if item is None:
                return False
            below_view = self._column(item)
            if below_view is None:
                return any(before.sequences.get(each.oid, (0, each.file))[1] != each.file for each in self._sequences)
            column, relation, more = below_view, item.sql, ""
        elif not self._has_readable_xids:
            return False
        greatest = f"SELECT max({column}) FROM {relation} WHERE {column} < {self._value(before.end)}{more}"
        late = f"SELECT FROM {relation} AS t WHERE {column} = ({greatest}) AND {self._unseen_condition(before)}{more}"
        return bool(self._fetch(f"SELECT EXISTS ({late})", [])[0][0])

    def _count(self, where: str, item: Origin | None = None) -> int:
        relation, more = self._relation(item)
        limited = f"SELECT FROM {relation} AS t WHERE {where}{more} LIMIT {_MAX_COUNTED}"
        return int(self._fetch(f"SELECT count(*) FROM ({limited}) AS late", [])[0][0])

    def _relation(self, item: Origin | None) -> tuple[str, str]:
        """Return, as SQL, the relation to search for the rows of one origin, and a condition to add.

        If the user may not read the origin itself, the source table is searched, with a condition for the origin's
        rows; otherwise the condition is empty.

        :param item: the origin; None for the source table or view as a whole
        """
        if item is None:
            return self._table.sql, ""
        if self._fetch(_MAY_READ, [item.oid])[0][0]:
            return item.sql, ""
        return self._table.sql, f" AND tableoid = {item.oid:d}"

    def _unseen_condition(self, before: SourceSnapshot) -> str:
        """Return the SQL condition for rows ``t`` written by a transaction that the last planning could not see.

        If the run looks for changes of columns, rows that ALTER TABLE has rewritten are excluded: those of a relation
        with a new file, written by a transaction that altered one of its columns.

        :param before: snapshot of the source at the last planning
        """
        unseen = (
            f"NOT txid_visible_in_snapshot({_WRITTEN.format(row='t')}, {literal(before.transactions)}::txid_snapshot)"
        )
        rewritten = [item.oid for item in self._origins if before.files.get(item.oid, item.file) != item.file]
        if not (self._follows_columns and rewritten):
            return unseen
        return f"{unseen} AND NOT (t.tableoid IN ({', '.join(map(str, rewritten))}) AND {_WRITTEN_BY_ALTER})"

    @property
    def _has_readable_xids(self) -> bool:
        """Return whether the rows' ``xmin`` can be read, which shows the transaction that wrote them.

        A view does not have it, and a user who may read only some columns of a table cannot read it.
        """
        return self._table.kind != "v" and bool(self._fetch(_MAY_READ, [self._table.oid])[0][0])

    def _value(self, position: int) -> str:
        return value_sql(self._kind, position)

    def _leads(self, sequence: SequenceState) -> bool:
        """Return whether a sequence is at or beyond the table's greatest position, so that it may have assigned it.

        Return False if the sequence has assigned no value, or the table is empty.
        """
        if sequence.last is None or self._greatest is None:
            return False
        return sequence.last + max(sequence.step, 1) - 1 >= self._greatest


def _number(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows" if count < _MAX_COUNTED else f"{count} rows or more"
