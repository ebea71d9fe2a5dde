"""Read the present value and the properties of sequences from PostgreSQL's catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.table import Fetch

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
_SEQUENCES_BY_NAME = """
WITH wanted (name) AS (SELECT unnest({0}::text[])), found (name, oid) AS (
    SELECT name, pg_catalog.to_regclass(name)::oid FROM wanted
)
SELECT c.oid::bigint FROM found JOIN pg_catalog.pg_class c ON c.relkind = 'S' AND (
    c.oid = found.oid OR found.oid IS NULL AND c.relname IN (found.name, pg_catalog.lower(found.name))
)
"""
"""Query of sequences by name: on the search path, or else in any schema.

Functions can have a search path of their own, so a sequence that this session does not find may be meant.
"""

_OF_TABLES = """
WITH wanted (oid) AS (SELECT pg_catalog.to_regclass(name)::oid FROM unnest({0}::text[]) AS name), linked (oid) AS (
    SELECT d.objid FROM wanted JOIN pg_catalog.pg_depend d ON d.refobjid = wanted.oid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
  UNION
    SELECT d.refobjid FROM wanted JOIN pg_catalog.pg_attrdef f ON f.adrelid = wanted.oid
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
)
SELECT c.oid::bigint FROM linked JOIN pg_catalog.pg_class c ON c.oid = linked.oid AND c.relkind = 'S'
"""


@dataclass(frozen=True, slots=True)
class SequenceState:
    """State of a sequence.

    :param oid: the sequence's oid
    :param name: schema and name, as SQL
    :param cache_size: number of values that a session takes at a time (CACHE)
    :param step: increment; negative if the sequence counts down
    :param cycles: whether the sequence starts again after its last value (CYCLE)
    :param file: number of the file that stores the sequence; changes when it is restarted or altered
    :param last: the newest value; None if there is none yet or the user may not read it
    :param readable: whether the user may read the newest value
    :param start: the first value
    """

    oid: int
    name: str
    cache_size: int
    step: int
    cycles: bool
    file: int
    last: int | None
    readable: bool
    start: int


def sequence_states(fetch: Fetch, oids: frozenset[int]) -> Sequence[SequenceState]:
    """Return the present state of sequences; oids that belong to no sequence are ignored.

    :param fetch: runs a query and returns its rows
    :param oids: oids of the sequences
    """
    return [SequenceState(*row) for row in fetch(_SEQUENCES, [array_text(sorted(oids))])] if oids else []


def find_sequences(fetch: Fetch, names: Iterable[str]) -> frozenset[int]:
    """Return the oids of the sequences with the given names; a name that no sequence has is ignored.

    :param fetch: runs a query and returns its rows
    :param names: names of the sequences, written as in SQL
    """
    wanted = sorted(set(names))
    return frozenset(row[0] for row in fetch(_SEQUENCES_BY_NAME, [array_text(wanted)])) if wanted else frozenset()


def sequences_of_tables(fetch: Fetch, tables: Iterable[str]) -> frozenset[int]:
    """Return the oids of the sequences that fill columns of the given tables.

    :param fetch: runs a query and returns its rows
    :param tables: names of the tables, written as in SQL
    """
    wanted = sorted(set(tables))
    return frozenset(row[0] for row in fetch(_OF_TABLES, [array_text(wanted)])) if wanted else frozenset()


def array_text(names: Iterable[Any]) -> str:
    """Return the text form of a PostgreSQL array of the given values, which all drivers bind in the same way."""
    return "{" + ",".join('"' + str(name).replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names) + "}"
