"""Find the relations from which a source's rows come: partitions, child tables and the relations below a view."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table

_ORIGINS = """
WITH RECURSIVE origin (oid) AS (
    SELECT {0}::oid
  UNION
    SELECT next.oid FROM origin, LATERAL (
        SELECT i.inhrelid AS oid FROM pg_catalog.pg_inherits i WHERE i.inhparent = origin.oid
      UNION ALL
        SELECT d.refobjid FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend d
            ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = w.oid
        WHERE w.ev_class = origin.oid AND w.ev_type = '1' AND d.refclassid = 'pg_catalog.pg_class'::regclass
          AND d.refobjid <> origin.oid
    ) AS next
)
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relfilenode::bigint, ARRAY(
    SELECT pg_catalog.format('%s/%s', i.inhparent::bigint, i.xmin) FROM pg_catalog.pg_inherits i
    WHERE i.inhrelid = c.oid ORDER BY i.inhparent
)
FROM origin JOIN pg_catalog.pg_class c ON c.oid = origin.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind NOT IN ('i', 'I', 'S', 't', 'c')
ORDER BY c.oid
"""

_VIEW_DEFINITION = """
SELECT w.ev_action::text FROM pg_catalog.pg_rewrite w
JOIN pg_catalog.pg_class c ON c.oid = w.ev_class AND c.relkind = 'v'
WHERE w.ev_class = {0}::oid AND w.ev_type = '1'
"""
_CHILD_COLUMNS = """
WITH RECURSIVE heir (oid, name) AS (
    SELECT a.attrelid, a.attname FROM pg_catalog.pg_attribute a
    WHERE (a.attrelid, a.attnum) IN (SELECT * FROM unnest({0}::oid[], {1}::int[]))
  UNION
    SELECT i.inhrelid, heir.name FROM heir JOIN pg_catalog.pg_inherits i ON i.inhparent = heir.oid
)
SELECT a.attrelid::bigint, a.attnum::int, a.attname::text FROM heir
JOIN pg_catalog.pg_attribute a ON a.attrelid = heir.oid AND a.attname = heir.name
"""
_OUTPUT_COLUMN = re.compile(r":resname ((?:\\.|[^\s\\])+) :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (\d+)")
"""Pattern of an output column of a view, with the relation's column that it shows.

It matches the text of the view's query tree in ``pg_rewrite.ev_action``.
"""

WRITTEN_ELSEWHERE = {"f": "foreign table", "m": "materialised view"}
"""Kinds of relation (``pg_class.relkind``) whose rows are not written by transactions on it, with names for messages.

Transactions that have written such rows but have not committed yet cannot be detected.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """A relation from which rows of a source come: a table, partition, child table, view, or relation below a view.

    :param oid: the relation's oid
    :param schema: the relation's schema
    :param name: the relation's name
    :param kind: ``pg_class.relkind``
    :param file: number of the file that stores its rows; changes when they are rewritten, or removed by TRUNCATE
    :param attached: ``<oid>/<xid>`` for each relation of which this one is a partition or child: that relation's oid,
        and the transaction that attached this one to it
    """

    oid: int
    schema: str
    name: str
    kind: str
    file: int
    attached: Sequence[str] = ()

    @property
    def parents(self) -> frozenset[int]:
        """Oids of the relations of which this one is a partition or child."""
        return frozenset(int(link.partition("/")[0]) for link in self.attached)

    @property
    def sql(self) -> str:
        """Schema and name of the relation as SQL."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def label(self) -> str:
        """Schema and name of the relation for messages."""
        return f"{self.schema}.{self.name}"


def origins(fetch: Fetch, table: Table) -> Sequence[Origin]:
    """Return the relations from which the rows of a table or view come, the table or view itself included.

    Relations that functions inside a view read are not found.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the table or view
    """
    return [Origin(*row) for row in fetch(_ORIGINS, [table.oid])]


def newly_attached(known: Sequence[Origin], attached: Mapping[int, Sequence[str]]) -> frozenset[int]:
    """Return the oids of the relations that were attached as a partition or child since an earlier planning.

    A relation below an attached one counts as attached, too; one that ``attached`` does not contain does not.

    :param known: the relations as they are now
    :param attached: value of :attr:`Origin.attached` at that planning, by the relation's oid
    """
    moved = {item.oid for item in known if list(attached.get(item.oid, item.attached)) != list(item.attached)}
    while below := {item.oid for item in known if item.parents & moved} - moved:
        moved |= below
    return frozenset(moved)


@dataclass(frozen=True, slots=True)
class OriginColumn:
    """A column of a relation from which rows of a source come.

    :param relation: the relation's oid
    :param number: the column's number (``attnum``)
    :param name: the column's name in that relation
    """

    relation: int
    number: int
    name: str


def origin_columns(fetch: Fetch, table: Table, column: str) -> Sequence[OriginColumn]:
    """Return the columns, under any name, from which the values of one column of a table or view come.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the table or view
    :param column: name of the column in the table or view
    """
    found = {(table.oid, table.by_name[column].number)}
    views = [(table.oid, column)]
    seen: set[tuple[int, str]] = set()
    while views:
        view = views.pop()
        if view in seen:
            continue
        seen.add(view)
        for (definition,) in fetch(_VIEW_DEFINITION, [view[0]]):
            below = {
                (int(oid), int(number))
                for name, oid, number in _OUTPUT_COLUMN.findall(definition)
                if oid != "0" and re.sub(r"\\(.)", r"\1", name) == view[1]
            }
            views += [(item.relation, item.name) for item in _with_children(fetch, below - found)]
            found |= below
    return _with_children(fetch, found)


def _with_children(fetch: Fetch, columns: Iterable[tuple[int, int]]) -> Sequence[OriginColumn]:
    known = sorted(columns)
    if not known:
        return []
    oids, numbers = ("{" + ",".join(map(str, values)) + "}" for values in zip(*known, strict=True))
    return [OriginColumn(*row) for row in fetch(_CHILD_COLUMNS, [oids, numbers])]
