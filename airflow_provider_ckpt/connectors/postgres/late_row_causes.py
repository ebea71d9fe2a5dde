"""Find causes of late rows: properties of a table by which new rows could get smaller cursor values than rows read.

Causes are, for example, sequences that cycle, count down or give each session several values at a time, clocks that are
rounded, and replication. A plan reads only greater values than the plans before it, so it would miss such rows.
Therefore each cause is reported by name before anything is sent. Rows that have appeared late are found by
``late_row_detection.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from airflow_provider_ckpt.connectors.postgres.coarse_values import is_coarse
from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, CursorKind
from airflow_provider_ckpt.connectors.postgres.cursor_code import CursorAssignment, cursor_assignments
from airflow_provider_ckpt.connectors.postgres.origin_tables import OriginColumn, origin_columns
from airflow_provider_ckpt.connectors.postgres.sequence_catalog import array_text, sequence_states
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table

log = logging.getLogger(__name__)

_LINKED_SEQUENCES = """
WITH cursor (oid, number) AS (SELECT * FROM unnest({0}::oid[], {1}::int[]))
SELECT d.objid::bigint FROM pg_catalog.pg_depend d
JOIN cursor ON d.refobjid = cursor.oid AND d.refobjsubid = cursor.number
WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
UNION
SELECT d.refobjid::bigint FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attrdef f ON f.oid = d.objid
JOIN cursor ON f.adrelid = cursor.oid AND f.adnum = cursor.number
WHERE d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
"""
_COMPUTED_FROM = """
SELECT DISTINCT a.attrelid::bigint, a.attnum::int, a.attname::text
FROM (SELECT * FROM unnest({0}::oid[], {1}::int[])) AS cursor (oid, number)
JOIN pg_catalog.pg_attribute g ON g.attrelid = cursor.oid AND g.attnum = cursor.number AND g.attgenerated <> ''
JOIN pg_catalog.pg_attrdef f ON f.adrelid = g.attrelid AND f.adnum = g.attnum
JOIN pg_catalog.pg_depend d ON (d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
    OR d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = g.attrelid AND d.objsubid = g.attnum)
  AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = g.attrelid AND d.refobjsubid > 0
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attnum <> g.attnum
"""
"""Query of the columns from which a generated cursor is computed, which are not generated themselves."""

_SUBSCRIBED = """
SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_subscription_rel r
JOIN pg_catalog.pg_class c ON c.oid = r.srrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE r.srrelid = ANY ({0}::oid[])
"""


class LateRowCause(NamedTuple):
    """Reason why new rows can get smaller positions than rows that were read.

    :param description: the reason, in whole sentences
    :param correction: the correction, as an imperative without a full stop: ``Name a connection to the publisher``
    """

    description: str
    correction: str


class LateRowCauses:
    """Search for causes by which new rows of a table or view can get smaller cursor values than rows already read.

    The search examines the sequences, column defaults, generated columns and triggers that fill the cursor, and the
    functions that these call (see :mod:`.cursor_code`). The constructor queries the catalog only for the columns from
    which the cursor's values come; the rest is queried at the first use.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the table or view
    :param cursor: name of the cursor column
    """

    def __init__(self, fetch: Fetch, table: Table, cursor: str) -> None:
        self._fetch = fetch
        self._table = table
        self._cursor = cursor
        self._kind = CursorKind(table.by_name[cursor].base_type)
        self._columns = origin_columns(fetch, table, cursor)

    @cached_property
    def sequence_oids(self) -> frozenset[int]:
        """Oids of all sequences that fill the cursor; empty if the cursor is not an integer.

        Sequences that fill the other columns from which a generated cursor is computed are not included.
        """
        if self._kind not in INTEGERS:
            return frozenset()
        return self._linked_sequences(self._columns) | {oid for item in self._assignments for oid in item.sequences}

    @cached_property
    def _assignments(self) -> Sequence[CursorAssignment]:
        return cursor_assignments(self._fetch, self._columns)

    def find(self) -> Iterator[LateRowCause]:
        """Yield the reasons why new rows can get smaller positions than rows that were read.

        Log a warning if the user may not read the current value of a sequence.
        """
        for (name,) in self._fetch(_SUBSCRIBED, [_oids(self._columns)]):
            yield LateRowCause(
                f"{name} gets its rows by logical replication, in the order in which transactions were committed, "
                f"so that smaller values of {self._cursor} can appear after greater ones.",
                "Name a connection to the publisher",
            )
        yield from self._sequence_causes()
        for item in self._assignments:
            if item.unreadable is not None:
                yield LateRowCause(
                    f"cursor {self._cursor} of {self._table.label} is filled by {item.label}, which {item.unreadable}. "
                    "So it is unknown whether new rows can get smaller values than rows that were read.",
                    "Name its sequence as a constant, such as nextval('orders_id_seq')",
                )
        column = self._table.by_name[self._cursor]
        for item in self._assignments:
            if is_coarse(self._fetch, item, self._kind, column.modifier):
                yield LateRowCause(
                    f"cursor {self._cursor} of {self._table.label} is filled by {item.label}, which is rounded, so "
                    "that a new row can get a value that was read already.",
                    "Fill it by clock_timestamp(), in a column of that type, or choose another cursor",
                )

    def _sequence_causes(self) -> Iterator[LateRowCause]:
        for sequence in sequence_states(self._fetch, self.sequence_oids | self._indirect_sequences):
            fills = f"sequence {sequence.name} fills cursor {self._cursor} of {self._table.label} and"
            if sequence.cache_size > 1:
                yield LateRowCause(
                    f"{fills} hands out {sequence.cache_size} values at a time to each session, so that smaller ones "
                    "can appear after greater ones.",
                    f"ALTER SEQUENCE {sequence.name} CACHE 1, or choose another cursor",
                )
            if sequence.step < 0:
                yield LateRowCause(
                    f"{fills} counts down, so that every new row is below those that were read.",
                    "Choose a cursor that only grows",
                )
            elif sequence.cycles:
                yield LateRowCause(
                    f"{fills} begins again at its least value once it has reached its greatest (CYCLE), so that new "
                    "rows will be below those that were read.",
                    f"ALTER SEQUENCE {sequence.name} NO CYCLE, or choose another cursor",
                )
            if not sequence.readable:
                log.warning(
                    "%s this user may not read its current value: GRANT SELECT ON SEQUENCE %s, so that values that it "
                    "assigns below the checkpoint can be detected",
                    fills,
                    sequence.name,
                )

    @property
    def _indirect_sequences(self) -> frozenset[int]:
        """Oids of the sequences that fill the columns from which a generated cursor is computed."""
        if self._kind not in INTEGERS:
            return frozenset()
        columns = [
            OriginColumn(*row) for row in self._fetch(_COMPUTED_FROM, [_oids(self._columns), _numbers(self._columns)])
        ]
        if not columns:
            return frozenset()
        return self._linked_sequences(columns) | {
            oid for item in cursor_assignments(self._fetch, columns) for oid in item.sequences
        }

    def _linked_sequences(self, columns: Sequence[OriginColumn]) -> frozenset[int]:
        return frozenset(row[0] for row in self._fetch(_LINKED_SEQUENCES, [_oids(columns), _numbers(columns)]))


def _oids(columns: Sequence[OriginColumn]) -> str:
    return array_text(item.relation for item in columns)


def _numbers(columns: Sequence[OriginColumn]) -> str:
    return array_text(item.number for item in columns)
