"""Refuse a target whose rewrite rules may change rows, whose added rows cannot be counted, or that is not writable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.row_count import RowCounter
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, describe_table
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
class TargetBehaviour:
    """Properties of a target that affect how rows are written and counted.

    :param rules: names of the target's rewrite rules (CREATE RULE) on INSERT, and for upserts on UPDATE
    :param row_security: whether policies of row level security apply to the sink's user
    :param counted: whether the server counts changes of rows (``track_counts``)
    """

    rules: tuple[str, ...]
    row_security: bool
    counted: bool

    @property
    def inserts_only(self) -> bool:
        """True if rows must be written by INSERT, because COPY does not work on the target.

        COPY ignores rules, and the server refuses it under row level security.
        """
        return bool(self.rules) or self.row_security


@dataclass(frozen=True, slots=True)
class TargetDescription:
    """Description of a target table as a writer needs it.

    :param table: the target table
    :param behaviour: the target's rules and row level security
    :param key: the target's key columns for upserts; empty for append
    """

    table: Table
    behaviour: TargetBehaviour
    key: Sequence[KeyColumn]

    def row_count(self, *, upsert: bool) -> RowCounter:
        """Return the generator of the SQL that counts the rows that a transaction adds to the target.

        :param upsert: whether replaced rows count as well
        """
        return RowCounter(self.table.oid, updates=upsert)


def describe_target(fetch: Fetch, name: str, key: Sequence[str]) -> TargetDescription | None:
    """Return the description of a target; None if there is no such table.

    :param fetch: runs a query and returns its rows
    :param name: name as written in a pipeline
    :param key: names of the columns of ``sink.key`` for upserts; empty for append
    """
    table = describe_table(fetch, name)
    if table is None:
        return None
    return TargetDescription(table, read_behaviour(fetch, table, upsert=bool(key)), describe_key(fetch, table, key))


def read_behaviour(fetch: Fetch, table: Table, *, upsert: bool) -> TargetBehaviour:
    """Read from the catalog the properties of a target that affect how rows are written.

    :param fetch: runs a query and returns its rows
    :param table: the target
    :param upsert: whether to read rules on UPDATE as well
    """
    kinds = [_ON_INSERT, _ON_UPDATE] if upsert else [_ON_INSERT]
    rules, row_security, counted = fetch(_BEHAVIOUR, [table.oid, kinds])[0]
    return TargetBehaviour(tuple(rules), row_security, counted)


def refuse_altering_target(fetch: Fetch, table: Table, pipeline: Pipeline) -> None:
    """Raise ConfigError if rewrite rules of the target may change rows, or if added rows cannot be counted.

    With ``sink.rows_may_differ: true``, only rules of the target of an upsert are refused.

    :param fetch: runs a query
    :param table: the target
    :param pipeline: the pipeline
    :raises ConfigError: with the names of the rules or the setting, and the correction
    """
    upsert = pipeline.sink.upserts
    behaviour = read_behaviour(fetch, table, upsert=upsert)
    rules = ", ".join(behaviour.rules)
    if rules and (upsert or not pipeline.sink.may_store_other_rows):
        remedy = "use mode: append" if upsert else "write sink.rows_may_differ: true to let the rules apply"
        raise ConfigError(
            f"target {table.label} has rules ({rules}), so rows that are sent to it may be changed or dropped.",
            pipeline=pipeline.name,
            hint=f"DROP RULE … ON {table.sql}, name the table that the rules write to, or {remedy}.",
        )
    if not behaviour.counted and not pipeline.sink.may_store_other_rows:
        raise ConfigError(
            f"the server does not count the rows that {table.label} gets (track_counts = off), so a trigger that "
            "drops some would not be detected.",
            pipeline=pipeline.name,
            hint="Set track_counts = on, which autovacuum also needs, or write sink.rows_may_differ: true.",
        )


def refuse_unwritable_target(fetch: Fetch, table: Table, pipeline: Pipeline, connection: str) -> None:
    """Raise ConfigError if the server is a standby, or the user may not write to the target.

    :param fetch: runs a query
    :param table: the target
    :param pipeline: the pipeline
    :param connection: id of the Airflow connection, for the message
    :raises ConfigError: with the correction, such as the needed GRANT
    """
    needed = ["INSERT"]
    if pipeline.sink.upserts:
        needed += ["SELECT", "UPDATE"]
    elif pipeline.sink.replaces:
        needed += ["SELECT", "DELETE"]
    standby, allowed = fetch(_RIGHTS, [table.oid, needed])[0]
    if standby:
        raise ConfigError(
            f"the server of connection {connection!r} is a standby, which accepts no writes.",
            pipeline=pipeline.name,
            hint="Name a connection to the primary.",
        )
    if not allowed:
        raise ConfigError(
            f"the user of connection {connection!r} may not write to {table.label}.",
            pipeline=pipeline.name,
            hint=f"GRANT {', '.join(needed)} ON {table.sql} to it.",
        )
