"""Find the tables with new rows among many tables, by a constant number of queries.

A table has no new rows if its next planning would find nothing: neither a row to plan nor a sign of late rows. So the
greatest position, the sequences, the files and the server are compared with the snapshot that the last planning stored.
Any difference counts as new rows; the run of the table's pipeline then finds out whether there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.postgres.client import quote, split_table
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind, position_sql, value_sql
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.restored_server import restored_server_signs
from airflow_provider_ckpt.connectors.postgres.sequence_catalog import array_text, sequence_states
from airflow_provider_ckpt.connectors.postgres.source_snapshot import SourceSnapshot
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.connectors.postgres.timelines import server_state
from airflow_provider_ckpt.connectors.source_plan import SNAPSHOT

_TABLES = """
WITH RECURSIVE wanted (at, oid, cursor) AS (
    SELECT w.at, pg_catalog.to_regclass(w.name)::oid, w.cursor
    FROM unnest({0}::text[], {1}::text[]) WITH ORDINALITY AS w (name, cursor, at)
), base (at, oid, typname, typtype, typbasetype) AS (
    SELECT wanted.at, t.oid, t.typname, t.typtype, t.typbasetype
    FROM wanted JOIN pg_catalog.pg_attribute a ON a.attrelid = wanted.oid AND a.attname = wanted.cursor
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT base.at, t.oid, t.typname, t.typtype, t.typbasetype
    FROM base JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype WHERE base.typtype = 'd'
)
SELECT wanted.at::int - 1, c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.reltuples::float8,
       base.typname::text
FROM wanted JOIN pg_catalog.pg_class c ON c.oid = wanted.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN base ON base.at = wanted.at AND base.typtype <> 'd'
"""
_MEMBERS = """
WITH RECURSIVE member (root, oid) AS (
    SELECT oid, oid FROM unnest({0}::oid[]) AS oid
  UNION
    SELECT member.root, i.inhrelid FROM member JOIN pg_catalog.pg_inherits i ON i.inhparent = member.oid
)
SELECT member.root::bigint, c.oid::bigint, c.relfilenode::bigint, ARRAY(
    SELECT pg_catalog.format('%s/%s', i.inhparent::bigint, i.xmin) FROM pg_catalog.pg_inherits i
    WHERE i.inhrelid = c.oid ORDER BY i.inhparent
)
FROM member JOIN pg_catalog.pg_class c ON c.oid = member.oid
"""
"""Query of the partitions and children of tables, themselves included; see ``origin_tables.py``."""

_COUNTED = 10_000
"""Number of rows at which counting a table's new rows stops; the catalog's estimate is then used if it is greater."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table that exists, with the facts that the catalog has about it.

    :param progress: the table's pipeline and the position up to which it has planned
    :param oid: the table's oid
    :param sql: schema and name as SQL
    :param label: schema and name for messages
    :param estimate: the catalog's estimate of the number of rows; negative if the table was never analysed
    :param kind: type of its cursor
    """

    progress: TableProgress
    oid: int
    sql: str
    label: str
    estimate: float
    kind: CursorKind

    @property
    def cursor(self) -> str:
        """Name of the cursor column, quoted for SQL."""
        return quote(PostgresSourceSection.of(self.progress.pipeline).cursor)


class NewRowCounter:
    """Counter of the new rows of many tables.

    The state of the server, by which a restored server is recognised, is read once: when the object is created.

    :param fetch: runs a query on the source database and returns its rows
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._server = server_state(fetch)

    def count(self, tables: Sequence[TableProgress]) -> dict[str, int]:
        """Return the approximate number of new rows of each table that may have any, by the name of its pipeline.

        A table without new rows is left out. A table that is read as a whole in each run, or that cannot be examined,
        has the number 0. See :meth:`.SourceDatabase.count_new_records`.

        :param tables: the tables, which are queried together
        """
        relations = self._relations([table for table in tables if not table.pipeline.refreshes])
        without = self._without_new_rows([item for item in relations if item.progress.planned_end is not None])
        with_new_rows = [item for item in relations if item.progress.pipeline.name not in without]
        unknown = {table.pipeline.name: 0 for table in tables if table.pipeline.name not in without}
        return unknown | self._new_rows(with_new_rows)

    def _relations(self, tables: Sequence[TableProgress]) -> list[_Relation]:
        """Return those of the given tables that exist and have a cursor of a supported type.

        Views are left out, since their rows are stored in other relations.
        """
        sections = [PostgresSourceSection.of(table.pipeline) for table in tables]
        names = [".".join(quote(part) for part in split_table(section.table) if part) for section in sections]
        found = self._fetch(_TABLES, [array_text(names), array_text(section.cursor for section in sections)])
        return [
            _Relation(tables[at], oid, f"{quote(schema)}.{quote(name)}", f"{schema}.{name}", estimate, CursorKind(kind))
            for at, oid, schema, name, relkind, estimate, kind in found
            if relkind in ("r", "p") and kind in tuple(CursorKind)
        ]

    def _without_new_rows(self, relations: Sequence[_Relation]) -> set[str]:
        """Return the names of the pipelines whose next planning would find nothing to plan and nothing to refuse.

        :param relations: the tables, each with its pipeline's progress
        """
        snapshots = {item.oid: _snapshot(item.progress) for item in relations}
        known = {oid: snapshot for oid, snapshot in snapshots.items() if snapshot is not None}
        candidates = [item for item in relations if item.oid in known]
        if not candidates:
            return set()
        files: dict[int, dict[int, int]] = {}
        attached: dict[int, dict[int, list[str]]] = {}
        for root, oid, file, links in self._fetch(_MEMBERS, [array_text(known)]):
            files.setdefault(root, {})[oid] = file
            if links:
                attached.setdefault(root, {})[oid] = list(links)
        greatest = self._greatest(candidates)
        numbers = {oid for snapshot in known.values() for oid in snapshot.sequences}
        sequences = {state.oid: (state.last, state.file) for state in sequence_states(self._fetch, frozenset(numbers))}
        return {
            item.progress.pipeline.name
            for item in candidates
            if _all_read(known[item.oid], greatest[item.oid])
            and files.get(item.oid) == known[item.oid].files
            and attached.get(item.oid, {}) == known[item.oid].attached
            and {oid: sequences.get(oid) for oid in known[item.oid].sequences}
            == {oid: (last, file) for oid, (last, file, _) in known[item.oid].sequences.items()}
            and not any(restored_server_signs(self._server, known[item.oid], item.label))
        }

    def _greatest(self, relations: Sequence[_Relation]) -> Mapping[int, int | None]:
        """Return the greatest position in each table, by the table's oid; None for an empty table.

        :param relations: the tables
        """
        parts = [
            f"SELECT {item.oid}::bigint, {position_sql(item.kind, 'c')} "
            f"FROM (SELECT max({item.cursor}) AS c FROM {item.sql}) AS m"
            for item in relations
        ]
        return {row[0]: row[1] for row in self._fetch(" UNION ALL ".join(parts), [])}

    def _new_rows(self, relations: Sequence[_Relation]) -> dict[str, int]:
        if not relations:
            return {}
        parts = [
            f"SELECT {item.oid}::bigint, count(*) FROM (SELECT FROM {item.sql}{_from_planned_end(item)} "
            f"LIMIT {_COUNTED}) AS new"
            for item in relations
        ]
        counted = {row[0]: row[1] for row in self._fetch(" UNION ALL ".join(parts), [])}
        return {
            item.progress.pipeline.name: max(counted[item.oid], int(item.estimate))
            if counted[item.oid] == _COUNTED
            else counted[item.oid]
            for item in relations
        }


def _from_planned_end(relation: _Relation) -> str:
    end = relation.progress.planned_end
    return "" if end is None else f" WHERE {relation.cursor} >= {value_sql(relation.kind, end)}"


def _snapshot(progress: TableProgress) -> SourceSnapshot | None:
    """Return the snapshot that a table's last planning stored.

    :param progress: the table and its pipeline's progress
    :return: None if there is no snapshot, or the end of the plan has moved since it was stored
    """
    state = progress.state or {}
    if SNAPSHOT not in state:
        return None
    snapshot = SourceSnapshot.from_json(state[SNAPSHOT])
    return snapshot if snapshot.end == progress.planned_end else None


def _all_read(snapshot: SourceSnapshot, greatest: int | None) -> bool:
    """Return whether the table's greatest position is still that of the snapshot, and the last plan has reached it.

    :param snapshot: the snapshot that the last planning stored
    :param greatest: the greatest position in the table now; None if it is empty
    """
    return greatest == snapshot.top and (greatest is None or greatest == snapshot.end - 1)
