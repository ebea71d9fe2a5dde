"""Sequences, however they are linked, defaults and subscriptions that fill a cursor column in new rows.

A value that is smaller than one that was read already means a row that is never read, so whatever gives out such values
is reported by name before anything is sent.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from airflow_provider_ckpt.connectors.postgres.column_types import DAY, INTEGERS, CursorKind, position_sql
from airflow_provider_ckpt.connectors.postgres.common import sqlstate_of
from airflow_provider_ckpt.connectors.postgres.origins import origin_columns
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table

log = logging.getLogger(__name__)

_LINKED = """
WITH cursor (oid, number) AS (SELECT * FROM unnest({0}::oid[], {1}::int[]))
SELECT d.objid::bigint FROM pg_catalog.pg_depend d
JOIN cursor ON d.refobjid = cursor.oid AND d.refobjsubid = cursor.number
WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
UNION
SELECT d.refobjid::bigint FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attrdef f ON f.oid = d.objid
JOIN cursor ON f.adrelid = cursor.oid AND f.adnum = cursor.number
WHERE d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
"""
_DEFAULTS = """
WITH RECURSIVE cursor (oid, number) AS (SELECT * FROM unnest({0}::oid[], {1}::int[])), typed (oid) AS (
    SELECT a.atttypid FROM pg_catalog.pg_attribute a JOIN cursor ON a.attrelid = cursor.oid AND a.attnum = cursor.number
  UNION
    SELECT t.typbasetype FROM typed JOIN pg_catalog.pg_type t ON t.oid = typed.oid WHERE t.typtype = 'd'
)
SELECT pg_catalog.pg_get_expr(f.adbin, f.adrelid) FROM pg_catalog.pg_attrdef f
JOIN cursor ON f.adrelid = cursor.oid AND f.adnum = cursor.number
UNION
SELECT t.typdefault FROM typed JOIN pg_catalog.pg_type t ON t.oid = typed.oid WHERE t.typdefault IS NOT NULL
"""
_TRIGGERS = """
SELECT DISTINCT p.prosrc FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = ANY ({0}::oid[]) AND NOT t.tgisinternal AND t.tgtype & 7 = 7
"""
"""Bodies of the functions that row triggers call before an insert."""

_FUNCTIONS = """
SELECT n.nspname::text, p.proname::text, p.prosrc FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = ANY ({0}::text[]) AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_NAMED = "SELECT pg_catalog.to_regclass(name)::oid::bigint FROM unnest({0}::text[]) AS name"

_SEQUENCES = """
SELECT s.seqrelid::bigint, pg_catalog.format('%I.%I', n.nspname, c.relname), s.seqcache, s.seqincrement, s.seqcycle,
       c.relfilenode::bigint,
       CASE WHEN pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT')
            THEN pg_catalog.pg_sequence_last_value(s.seqrelid) END,
       pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT'), s.seqstart
FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE s.seqrelid = ANY ({0}::oid[]) ORDER BY s.seqrelid
"""
_SUBSCRIBED = """
SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_subscription_rel r
JOIN pg_catalog.pg_class c ON c.oid = r.srrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE r.srrelid = ANY ({0}::oid[])
"""
_NEXTVAL = re.compile(r"nextval\s*\(\s*\(*\s*'((?:[^']|'')+)'", re.IGNORECASE)
_CALLED = re.compile(r"(?:\"((?:[^\"]|\"\")+)\"|([A-Za-z_][\w$]*))\s*\(")
_CLOCK = re.compile(r"\bnow\s*\(|_timestamp\s*\(|\b(?:current|local)_?(?:date|time)|timeofday", re.IGNORECASE)
_DEPTH = 5
"""Functions that call functions: how far they are followed."""

_GRAINS = (DAY, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class SequenceState:
    """A sequence that gives values to the cursor.

    :param cached: values that a session takes at a time
    :param file: changes when the sequence is restarted or altered
    :param last: the newest value that it gave out, None if there was none or the user may not see it
    :param readable: whether the user may see it
    :param start: the value that it gives out first
    """

    oid: int
    name: str
    cached: int
    step: int
    cycles: bool
    file: int
    last: int | None
    readable: bool
    start: int


class Problem(NamedTuple):
    """Reason why new rows will come below those that were read.

    :param seen: the reason, as a sentence
    :param remedy: what can be done about it
    """

    seen: str
    remedy: str


class CursorValues:
    """Sequences and defaults that fill the cursor of one table or view."""

    def __init__(self, fetch: Fetch, table: Table, cursor: str) -> None:
        self._fetch = fetch
        self._table = table
        self._cursor = cursor
        self._kind = CursorKind(table.by_name[cursor].base_type)
        self._columns = origin_columns(fetch, table, cursor)
        self._oids = _array(item.relation for item in self._columns)
        self._numbers = _array(item.number for item in self._columns)

    def sequences(self) -> Sequence[SequenceState]:
        """Every sequence that gives it values, as it stands now."""
        return sequence_states(self._fetch, self.sequence_oids)

    @cached_property
    def sequence_oids(self) -> frozenset[int]:
        """Every sequence that gives it values."""
        if self._kind not in INTEGERS:
            return frozenset()
        linked = {row[0] for row in self._fetch(_LINKED, [self._oids, self._numbers])}
        names = sorted({name for text in self._texts() for name in _named(text)})
        if names:
            linked |= {row[0] for row in self._fetch(_NAMED, [_array(names)]) if row[0] is not None}
        return frozenset(linked)

    def problems(self) -> Iterator[Problem]:
        """Yield the reasons why new rows will come below those that were read."""
        for (name,) in self._fetch(_SUBSCRIBED, [self._oids]):
            yield Problem(
                f"{name} gets its rows by logical replication, in the order in which transactions were committed, "
                f"so that smaller values of {self._cursor} can appear after greater ones.",
                "Name a connection to the publisher",
            )
        for sequence in self.sequences():
            fills = f"sequence {sequence.name} fills cursor {self._cursor} of {self._table.label} and"
            if sequence.cached > 1:
                yield Problem(
                    f"{fills} hands out {sequence.cached} values at a time to each session, so that smaller ones can "
                    "appear after greater ones.",
                    f"ALTER SEQUENCE {sequence.name} CACHE 1, or choose another cursor",
                )
            if sequence.step < 0:
                yield Problem(
                    f"{fills} counts down, so that every new row is below those that were read.",
                    "Choose a cursor that only grows",
                )
            elif sequence.cycles:
                yield Problem(
                    f"{fills} begins again at its least value once it has reached its greatest (CYCLE), so that new "
                    "rows will be below those that were read.",
                    f"ALTER SEQUENCE {sequence.name} NO CYCLE, or choose another cursor",
                )
            if not sequence.readable:
                log.warning(
                    "%s this user may not see how far it is: GRANT SELECT ON SEQUENCE %s, so that values that are "
                    "given out below the checkpoint can be told",
                    fills,
                    sequence.name,
                )
        if self._kind not in INTEGERS:
            yield from self._coarse()

    def _coarse(self) -> Iterator[Problem]:
        """Defaults of a time that stand still for a while: a row may get a value that was read already."""
        if self._kind is CursorKind.DATE:
            return
        precision = self._table.by_name[self._cursor].modifier
        own = 10 ** (6 - precision) if 0 <= precision < 6 else 1
        for (text,) in self._fetch(_DEFAULTS, [self._oids, self._numbers]):
            if self._stands_still(text, own):
                yield Problem(
                    f"cursor {self._cursor} of {self._table.label} has the default {text}, which is rounded, so that a "
                    "new row can get a value that was read already.",
                    "Give it the default clock_timestamp(), or choose another cursor",
                )

    def _stands_still(self, text: str, own: int) -> bool:
        """Whether a default is coarser than its column, by what it gives now.

        :param own: microseconds that the column can tell apart
        """
        if not _CLOCK.search(text) or self._fetch(_FUNCTIONS, [_array(_calls(text))]):
            return False
        samples: list[int] = []
        try:
            for _ in range(_SAMPLES):
                samples.append(int(self._fetch(f"SELECT {self._position(text)}", [])[0][0] or 0))
                if not _coarser(samples, own):
                    return False
                time.sleep(1.1 * own / 1_000_000)
        except Exception as error:
            if sqlstate_of(error) is None:  # the connection, and not the expression
                raise
            return False
        return True

    def _position(self, text: str) -> str:
        return position_sql(self._kind, f"({text})::{self._kind}")

    def _texts(self) -> Iterator[str]:
        """Source texts that may name a sequence for the cursor: defaults, triggers, and what they call."""
        texts = [row[0] for row in self._fetch(_DEFAULTS, [self._oids, self._numbers])]
        names = {item.name for item in self._columns}
        for (body,) in self._fetch(_TRIGGERS, [self._oids]):
            texts += [text for name in names for text in _assignments(body, name)]
        seen: set[tuple[str, str]] = set()
        for _ in range(_DEPTH):
            yield from texts
            called = sorted({name for text in texts for name in _calls(text)})
            if not called:
                return
            found = {(row[0], row[1]): row[2] for row in self._fetch(_FUNCTIONS, [_array(called)])}
            texts = [body for name, body in found.items() if name not in seen]
            seen |= found.keys()


def sequence_states(fetch: Fetch, oids: frozenset[int]) -> Sequence[SequenceState]:
    """Return the current state of the sequences with these oids."""
    return [SequenceState(*row) for row in fetch(_SEQUENCES, [_array(sorted(oids))])] if oids else []


def _coarser(samples: Sequence[int], own: int) -> bool:
    return any(all(value % grain == 0 for value in samples) for grain in _GRAINS if grain > own)


def _named(text: str) -> Iterator[str]:
    """Names of sequences in a text, as constants of ``nextval``."""
    return (name.replace("''", "'") for name in _NEXTVAL.findall(text))


def _calls(text: str) -> Iterator[str]:
    """Names of the functions that a text calls."""
    return (quoted.replace('""', '"') or plain.lower() for quoted, plain in _CALLED.findall(text))


def _assignments(body: str, cursor: str) -> list[str]:
    """The statements of a trigger's function that speak of the cursor of the new row."""
    wanted = re.compile(rf'\bnew\s*\.\s*"?{re.escape(cursor)}"?(?![\w$])', re.IGNORECASE)
    return [statement for statement in body.split(";") if wanted.search(statement)]


def _array(names: Iterable[Any]) -> str:
    """A PostgreSQL array as its text, which every driver binds alike."""
    return "{" + ",".join('"' + str(name).replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names) + "}"
