"""Behaviour of a target beyond storing rows: rules and row level security."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.row_count import RowCount
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, describe
from airflow_provider_ckpt.connectors.postgres.upsert_key import KeyColumn, describe_key
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_ON_UPDATE, _ON_INSERT = "2", "3"
_BEHAVIOUR = """
SELECT coalesce((SELECT array_agg(r.rulename::text ORDER BY r.rulename) FROM pg_catalog.pg_rewrite r
                 WHERE r.ev_class = c.oid AND r.ev_enabled <> 'D' AND r.ev_type::text = ANY ({1}::text[])), '{{}}'),
       pg_catalog.row_security_active(c.oid), pg_catalog.current_setting('track_counts') = 'on'
FROM pg_catalog.pg_class c WHERE c.oid = {0}::oid
"""
_RIGHTS = """
SELECT pg_catalog.pg_is_in_recovery(),
       (SELECT bool_and(pg_catalog.has_table_privilege({0}::oid, needed)) FROM unnest({1}::text[]) AS needed)
"""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Properties of a target that affect how rows are written and counted.

    :param rules: names of its rules on INSERT, and for upserts on UPDATE
    :param row_security: whether policies apply to this user
    :param counted: whether the server counts changes of rows (``track_counts``)
    """

    rules: tuple[str, ...]
    row_security: bool
    counted: bool

    @property
    def inserts_only(self) -> bool:
        """Whether rows must come by INSERT: COPY passes rules by, and is refused under row level security."""
        return bool(self.rules) or self.row_security


@dataclass(frozen=True, slots=True)
class Target:
    """A target as a writer needs to know it.

    :param key: of upserts; empty for append
    """

    table: Table
    behaviour: Behaviour
    key: Sequence[KeyColumn]

    def row_count(self, *, upsert: bool) -> RowCount:
        """Return the SQL that counts the rows that a transaction adds."""
        return RowCount(self.table.oid, updates=upsert)


def describe_target(fetch: Fetch, name: str, key: Sequence[str]) -> Target | None:
    """The target of that name, or None if there is no such table.

    :param name: as a pipeline writes it
    :param key: the columns of ``sink.key``, for upserts
    """
    table = describe(fetch, name)
    if table is None:
        return None
    return Target(table, behaviour_of(fetch, table, upsert=bool(key)), describe_key(fetch, table, key))


def behaviour_of(fetch: Fetch, table: Table, *, upsert: bool) -> Behaviour:
    """Read a target's behaviour from the catalog.

    :param fetch: runs a query
    :param table: the target
    :param upsert: whether rules on UPDATE matter, too
    """
    kinds = [_ON_INSERT, _ON_UPDATE] if upsert else [_ON_INSERT]
    rules, row_security, counted = fetch(_BEHAVIOUR, [table.oid, kinds])[0]
    return Behaviour(tuple(rules), row_security, counted)


def refuse_altering_target(fetch: Fetch, table: Table, pipeline: Pipeline) -> None:
    """Fail if the target has rules that may make other rows of what is sent, or if nobody could tell.

    :raises ConfigError: naming the rules and what to do
    """
    upsert = pipeline.sink.mode == "upsert"
    behaviour = behaviour_of(fetch, table, upsert=upsert)
    rules = ", ".join(behaviour.rules)
    if rules and (upsert or not pipeline.sink.rows_may_differ):
        remedy = "use mode: append" if upsert else "write sink.rows_may_differ: true, and rows go the rules' way"
        raise ConfigError(
            f"target {table.label} has rules ({rules}), so what is sent to it may become other rows or none.",
            pipeline=pipeline.name,
            hint=f"DROP RULE … ON {table.sql}, name the table that the rules lead to, or {remedy}.",
        )
    if not behaviour.counted and not pipeline.sink.rows_may_differ:
        raise ConfigError(
            f"the server does not count the rows that {table.label} gets (track_counts = off), so a trigger that "
            "swallows some would not be seen.",
            pipeline=pipeline.name,
            hint="Set track_counts = on, which autovacuum needs, too, or write sink.rows_may_differ: true.",
        )


def refuse_unwritable_target(fetch: Fetch, table: Table, pipeline: Pipeline, connection: str) -> None:
    """Fail if the server takes no writes, or the user may not write to the target.

    :param connection: its id
    :raises ConfigError: saying what to grant
    """
    needed = ["INSERT", "SELECT", "UPDATE"] if pipeline.sink.mode == "upsert" else ["INSERT"]
    standby, allowed = fetch(_RIGHTS, [table.oid, needed])[0]
    if standby:
        raise ConfigError(
            f"the server of connection {connection!r} is a standby, which takes no writes.",
            pipeline=pipeline.name,
            hint="Name a connection to the primary.",
        )
    if not allowed:
        raise ConfigError(
            f"the user of connection {connection!r} may not write to {table.label}.",
            pipeline=pipeline.name,
            hint=f"GRANT {', '.join(needed)} ON {table.sql} to it.",
        )
