"""Read the complete definition of a table from PostgreSQL's catalog, so that two tables can be compared.

Properties that differ between any two tables are left out: names and oids of the tables and of their indexes, and
columns that were dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.table import Fetch

_SHAPE = """
SELECT 'the access method, tablespace or a storage option',
       jsonb_build_array(c.relam, c.reltablespace, c.relpersistence,
                         ARRAY(SELECT unnest(c.reloptions) ORDER BY 1),
                         ARRAY(SELECT unnest(t.reloptions) ORDER BY 1))::text
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = {0}::oid
UNION ALL
SELECT 'column ' || a.attname,
       jsonb_build_array(row_number() OVER (ORDER BY a.attnum), pg_catalog.pg_get_expr(d.adbin, d.adrelid),
                         pg_catalog.col_description(a.attrelid, a.attnum),
                         to_jsonb(a) - '{{attrelid,attnum,attndims,attcacheoff,atthasmissing,attmissingval,attislocal,'
                                       'attinhcount,attacl}}'::text[])::text
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = {0}::oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint ' || conname,
       jsonb_build_array(contype, pg_catalog.pg_get_constraintdef(oid), connoinherit,
                         pg_catalog.obj_description(oid, 'pg_constraint'))::text
FROM pg_catalog.pg_constraint WHERE conrelid = {0}::oid AND contype NOT IN ('p', 'u', 'x')
"""
_SETTINGS = """
SELECT 'the owner', relowner::text FROM pg_catalog.pg_class WHERE oid = {0}::oid
UNION ALL
SELECT 'the comment', coalesce(pg_catalog.obj_description({0}::oid, 'pg_class'), '')
UNION ALL
SELECT 'the replica identity', relreplident::text FROM pg_catalog.pg_class WHERE oid = {0}::oid
UNION ALL
SELECT 'a grant', jsonb_build_array(a.grantor, a.grantee, a.privilege_type, a.is_grantable)::text
FROM pg_catalog.pg_class c, pg_catalog.aclexplode(coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) a
WHERE c.oid = {0}::oid
UNION ALL
SELECT 'a grant on column ' || c.attname,
       jsonb_build_array(a.grantor, a.grantee, a.privilege_type, a.is_grantable)::text
FROM pg_catalog.pg_attribute c, pg_catalog.aclexplode(c.attacl) a
WHERE c.attrelid = {0}::oid AND NOT c.attisdropped
"""
_INDEXES = """
SELECT c.relname::text, con.conname::text, i.indisclustered, i.indisreplident,
       pg_catalog.obj_description(con.oid, 'pg_constraint'),
       (SELECT string_agg(pg_catalog.pg_get_indexdef(c.oid, n, false), ', ' ORDER BY n)
        FROM generate_series(1, i.indnkeyatts) n),
       jsonb_build_array(
           c.relam, c.reltablespace, ARRAY(SELECT unnest(c.reloptions) ORDER BY 1),
           to_jsonb(i) - '{{indexrelid,indrelid,indkey,indexprs,indpred,indcheckxmin,indisclustered,'
                         'indisreplident}}'::text[],
           ARRAY(SELECT pg_catalog.pg_get_indexdef(c.oid, n, false) FROM generate_series(1, i.indnatts) n ORDER BY n),
           pg_catalog.pg_get_expr(i.indpred, i.indrelid),
           ARRAY(SELECT jsonb_build_array(a.attstattarget, a.attoptions) FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid ORDER BY a.attnum),
           con.contype, pg_catalog.pg_get_constraintdef(con.oid), pg_catalog.obj_description(c.oid, 'pg_class'))::text
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_catalog.pg_constraint con ON con.conindid = i.indexrelid AND con.conrelid = i.indrelid
                                      AND con.contype IN ('p', 'u', 'x')
WHERE i.indrelid = {0}::oid ORDER BY c.oid
"""


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index of a table.

    :param name: the index's name
    :param constraint: name of the constraint that it enforces (primary key, unique or exclusion); None if there is none
    :param clustered: whether the table is marked to be clustered by it
    :param identifies: whether it is the table's replica identity
    :param comment: comment on the constraint; None if there is none
    :param columns: the key columns and expressions, for messages
    :param definition: all other properties of the index except its name, as text
    """

    name: str
    constraint: str | None
    clustered: bool
    identifies: bool
    comment: str | None
    columns: str
    definition: str


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """Definition of a table.

    :param shape: columns, constraints and storage, each as a label for messages and a text with all properties
    :param settings: owner, comment, grants and replica identity, in the same form
    :param indexes: the indexes
    """

    shape: Sequence[tuple[str, str]]
    settings: Sequence[tuple[str, str]]
    indexes: Sequence[TableIndex]

    def shape_differences(self, other: TableDefinition) -> list[str]:
        """Return labels of the differences in columns, constraints, storage and indexes; empty if there are none.

        :param other: definition of the other table
        """
        return _differences(self._shape_and_indexes, other._shape_and_indexes)

    def differences(self, other: TableDefinition) -> list[str]:
        """Return labels of all differences except names of indexes; empty if there are none.

        :param other: definition of the other table
        """
        return _differences(self._everything, other._everything)

    def index_pairs(self, other: TableDefinition) -> list[tuple[TableIndex, TableIndex]]:
        """Return the indexes of this table, each with an equal one of another table that has the same shape.

        :param other: definition of the other table
        """
        found: defaultdict[str, list[TableIndex]] = defaultdict(list)
        for index in other.indexes:
            found[index.definition].append(index)
        return [(index, found[index.definition].pop(0)) for index in self.indexes]

    @property
    def _shape_and_indexes(self) -> list[tuple[str, str]]:
        return [*self.shape, *((_label(index), index.definition) for index in self.indexes)]

    @property
    def _everything(self) -> list[tuple[str, str]]:
        marks = [(_label(index), f"{index.clustered} {index.identifies} {index.comment}") for index in self.indexes]
        return [*self._shape_and_indexes, *self.settings, *marks]


def read_definition(fetch: Fetch, oid: int) -> TableDefinition:
    """Return the definition of a table.

    :param fetch: runs a query and returns its rows
    :param oid: the table's oid
    """
    shape, settings = ([(label, text) for label, text in fetch(query, [oid])] for query in (_SHAPE, _SETTINGS))
    return TableDefinition(shape, settings, [TableIndex(*row) for row in fetch(_INDEXES, [oid])])


def _label(index: TableIndex) -> str:
    return f"an index on {index.columns}"


def _differences(one: Iterable[tuple[str, str]], other: Iterable[tuple[str, str]]) -> list[str]:
    first, second = Counter(one), Counter(other)
    return list(dict.fromkeys(label for label, _ in [*(first - second), *(second - first)]))
