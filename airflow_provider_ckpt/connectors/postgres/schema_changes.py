"""Apply a schema version: change the columns of a target in one transaction with a receipt, behind the fence.

The receipt of a schema version is a row of the table of replays. Like the claim of a batch, the transaction locks the
fence's row, so a run of an older epoch changes nothing. If a version is claimed twice, the first claim wins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres import restored_target
from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.column_types import stored_type
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT
from airflow_provider_ckpt.connectors.postgres.fence import fenced_epoch
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import Column, Fetch, Table, describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.type_widening import can_store, is_wider
from airflow_provider_ckpt.connectors.refuse_fenced_run import wrong_epoch_error
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import SinkContext

_LOCK_TIMEOUT = "10s"
"""Time for which a change of columns waits for running queries on the target; new queries wait behind the change."""

_BEGIN = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {SET_DURABLE_COMMIT}, "
    f"pg_catalog.set_config('lock_timeout', '{_LOCK_TIMEOUT}', true)"
)


def read_versions(fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext) -> list[SchemaVersion]:
    """Return the schema versions that have a receipt, in any order.

    :param fetch: runs a query
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline
    """
    rows = fetch(bookkeeping.schema_versions, [context.ledger, context.pipeline])
    return [SchemaVersion.from_json(document) for (document,) in rows]


def apply_version(
    session: Any,
    name: str,
    key: Sequence[str],
    context: SinkContext,
    version: SchemaVersion,
    steps: Sequence[TargetStep],
) -> None:
    """Claim the receipt of a schema version and change the target, in one transaction.

    :param session: psycopg2 connection in autocommit mode, whose application_name is that of sessions under the epoch
    :param name: name of the target as the pipeline gives it
    :param key: key columns of an upsert; empty for append
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param version: the version
    :param steps: the changes of the target; empty if it needs none
    :raises ConfigError: if a column of the target cannot store the source's values
    :raises FencedError: if the fence has a newer epoch
    :raises SinkError: if the version has a receipt already, or the fence has an older epoch or is absent
    """
    fetch = psycopg_fetch(session)
    with session.cursor() as cursor:
        cursor.execute(_BEGIN)
        table = describe_table(fetch, name)
        assert table is not None
        bookkeeping = BookkeepingTables(table.schema)
        _claim(fetch, bookkeeping, context, version)
        if steps:
            cursor.execute(f"LOCK TABLE {table.sql} IN ACCESS EXCLUSIVE MODE")
            for step in steps:
                table = describe_table(fetch, name)
                assert table is not None
                for action in _actions(fetch, table, step, context.pipeline):
                    cursor.execute(f"ALTER TABLE {table.sql} {action}")
            _store_snapshot(fetch, bookkeeping, context, name, key)
        cursor.execute("COMMIT")


def _claim(fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext, version: SchemaVersion) -> None:
    """Claim the receipt of a schema version, and lock the fence's row until the transaction ends.

    :param fetch: runs a statement and returns its rows
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param version: the version
    :raises FencedError: if the fence has a newer epoch
    :raises SinkError: if the fence has an older epoch or is absent, or the version has a receipt already
    """
    receipt = f"schema:{version.number}:{version.partition}"
    document = json.dumps(version.to_json())
    rows = fetch(bookkeeping.claim_schema_version, [context.ledger, context.pipeline, context.epoch, receipt, document])
    if rows:
        return
    fenced = fenced_epoch(fetch, bookkeeping, context)
    if fenced != context.epoch:
        raise wrong_epoch_error(fenced, context.epoch, bookkeeping.place, context.pipeline)
    raise SinkError(
        f"schema version {version.number} has a receipt in {bookkeeping.place} already.",
        pipeline=context.pipeline,
        recoverable=True,
        hint="Run again: the run reads the versions that the sink has first.",
    )


def _store_snapshot(
    fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext, name: str, key: Sequence[str]
) -> None:
    """Store a new snapshot of the target after its columns were changed.

    A change of a column's type gives the table another file and its rows other texts, so the last snapshot would not
    match.

    :param fetch: runs a statement and returns its rows
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param name: name of the target as the pipeline gives it
    :param key: key columns of an upsert
    """
    table = describe_table(fetch, name)
    assert table is not None
    snapshot = json.dumps(restored_target.take_target_snapshot(fetch, table, key))
    fetch(bookkeeping.store_target_snapshot, [context.ledger, context.pipeline, context.epoch, snapshot])


def _actions(fetch: Fetch, table: Table, step: TargetStep, pipeline: str) -> list[str]:
    """Return the actions of ALTER TABLE that carry out one change of a target; empty if the target needs no change.

    :param fetch: runs a query
    :param table: the target as it is
    :param step: the change
    :param pipeline: the pipeline's name, for messages
    :raises ConfigError: if the change is not possible
    """
    column = table.by_name.get(step.name)
    if step.kind is StepKind.RENAME:
        if column is None:
            return []
        if step.type in table.by_name:
            raise ConfigError(
                f"target {table.label} has both {step.name} and {step.type}, so that {step.name} cannot be renamed.",
                pipeline=pipeline,
                hint=f"Drop or rename {step.type} of the target, or write schema.renamed_column: as_new.",
            )
        return [f"RENAME COLUMN {quote(step.name)} TO {quote(step.type)}"]
    if step.kind is StepKind.ALLOW_NULL:
        return [f"ALTER COLUMN {quote(step.name)} DROP NOT NULL"] if column is not None and column.not_null else []
    kind = stored_type(fetch, step.type)
    if column is None:
        return [f"ADD COLUMN {quote(step.name)} {kind}"]
    return _widen(table, column, kind, pipeline)


def _widen(table: Table, column: Column, kind: str, pipeline: str) -> list[str]:
    """Return the action of ALTER TABLE that makes a column store all values of a type, as a list.

    The list is empty if the column stores them already.

    :param table: the target, for the message
    :param column: the target's column
    :param kind: the type of the source's values, as ``format_type`` writes it
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: if the column's type cannot be changed to this type without loss
    """
    if can_store(column.exact_type_sql, kind):
        return []
    if not is_wider(column.exact_type_sql, kind):
        raise ConfigError(
            f"column {column.name} of target {table.label} is {column.exact_type_sql}, which cannot become {kind} "
            "without loss.",
            pipeline=pipeline,
            hint=f"Change the type of the target's column to {kind}, then run again.",
        )
    return [f"ALTER COLUMN {quote(column.name)} TYPE {kind}"]
