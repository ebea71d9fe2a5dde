"""Puts a batch's rows into the target inside the writer's transaction: all at once, or one by one if some are bad.

All at once: binary COPY straight into the target, or through a temporary table where values need a cast or rows replace
others. One by one: an exception block for each row where it must be, so that a bad record costs itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.common import quote
from airflow_provider_ckpt.connectors.postgres.encode import Field, encoded, fields
from airflow_provider_ckpt.connectors.postgres.table import Table
from airflow_provider_ckpt.connectors.protocols import NUMBER
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

_BAD = "ckpt_bad"
CHECK = "SET CONSTRAINTS ALL IMMEDIATE"
"""Checks what the target defers to the commit while the failure can still be traced to its row."""

_OF_DATA = "data_exception OR integrity_constraint_violation OR program_limit_exceeded"
"""SQLSTATE classes 22, 23 and 54, which one row's data may be the cause of."""

_BLOCK = 64
"""Rows that are tried together before they are tried one by one."""


class Rows:
    """Sends the rows of batches that share one schema.

    :param cursor: an ADBC cursor of the lane's connection, in a transaction whenever a method is called
    :param key: the target's key columns; empty for append
    :raises ConfigError: if rows of this schema cannot go into the target
    """

    def __init__(self, cursor: Any, target: Table, schema: pa.Schema, key: Sequence[str]) -> None:
        self._cursor = cursor
        self._target = target
        self._key = key
        self._strict = fields(schema, target, strict=True)
        self._lenient = fields(schema, target, strict=False)

    def send(self, rows: pa.Table) -> None:
        """All rows or an error.

        :raises pyarrow.ArrowInvalid: if a value has no binary form of the target's type; :meth:`cast` may still do
        """
        if not self._key and all(field.direct for field in self._strict):
            self._ingest(self._target.name, encoded(rows, self._strict), db_schema_name=self._target.schema)
        else:
            stage = self._stage(rows, self._strict)
            self._script(self._insert(self._strict, stage))

    def cast(self, rows: pa.Table) -> None:
        """All rows or an error, every value cast by the server."""
        stage = self._stage(rows, self._lenient)
        self._script(self._insert(self._lenient, stage))

    def send_each(self, rows: pa.Table) -> dict[int, ErrorInfo]:
        """All rows that the target takes.

        :return: errors of the others, by number
        """
        stage = self._stage(rows, self._lenient)
        self._script(
            f"CREATE TEMP TABLE IF NOT EXISTS {_BAD} (number bigint, sqlstate text, message text, trace text)"
            f" ON COMMIT DELETE ROWS; {self._block(stage)}"
        )
        self._cursor.execute(f"SELECT number, sqlstate, message, trace FROM pg_temp.{_BAD} ORDER BY number")
        return {
            number: ErrorInfo(ErrorType.SINK, message, False, sqlstate, trace=trace)
            for number, sqlstate, message, trace in self._cursor.fetchall()
        }

    def _script(self, statements: str) -> None:
        self._cursor.executescript(statements)

    def _ingest(self, table: str, rows: pa.Table, **where: Any) -> None:
        self._cursor.adbc_ingest(table, rows, mode="append", **where)

    def _stage(self, rows: pa.Table, chosen: Sequence[Field]) -> str:
        import pyarrow as pa

        columns = ", ".join(f"{quote(field.name)} {field.stage_type}" for field in chosen)
        name = "ckpt_stage_" + hashlib.sha256(columns.encode()).hexdigest()[:16]
        self._script(
            f"CREATE TEMP TABLE IF NOT EXISTS {name} ({NUMBER} bigint{', ' + columns if columns else ''})"
            " ON COMMIT DELETE ROWS"
        )
        sent = encoded(rows, chosen)
        numbered = pa.table([rows.column(NUMBER), *sent.columns], [NUMBER, *sent.column_names])
        self._ingest(name, numbered, temporary=True)
        return f"pg_temp.{name}"

    def _insert(self, chosen: Sequence[Field], stage: str, where: str = "") -> str:
        names = ", ".join(quote(field.name) for field in chosen)
        values = ", ".join(field.value for field in chosen)
        by_name = {field.name: field.value for field in chosen}
        newest, order, replace = "", f"s.{NUMBER}", ""
        if self._key:
            keys = ", ".join(by_name[name] for name in self._key)
            newest, order = f"DISTINCT ON ({keys})", f"{keys}, s.{NUMBER} DESC"
            replace = self._on_conflict([field.name for field in chosen])
        return (
            f"INSERT INTO {self._target.sql} ({names}) OVERRIDING SYSTEM VALUE "
            f"SELECT {newest} {values} FROM {stage} AS s {where} ORDER BY {order} {replace};"
        )

    def _on_conflict(self, names: Sequence[str]) -> str:
        key = ", ".join(map(quote, self._key))
        others = [
            f"{quote(name)} = excluded.{quote(name)}"
            for name in names
            if name not in self._key and self._target.by_name[name].identity != "a"
        ]
        return f"ON CONFLICT ({key}) DO " + (f"UPDATE SET {', '.join(others)}" if others else "NOTHING")

    def _block(self, stage: str) -> str:
        """Blocks of rows in order, each in a subtransaction; the rows of a block that fails, one by one."""
        body = f"""
            #variable_conflict use_column
            DECLARE ckpt_block record; ckpt_item record; ckpt_detail text; ckpt_context text;
            BEGIN
                FOR ckpt_block IN
                    SELECT array_agg(ctid) AS places FROM (
                        SELECT ctid, (row_number() OVER (ORDER BY {NUMBER}) - 1) / {_BLOCK} AS block FROM {stage}
                    ) AS ranked GROUP BY block ORDER BY block
                LOOP
                    BEGIN
                        {self._insert(self._lenient, stage, "WHERE s.ctid = ANY (ckpt_block.places)")}
                    EXCEPTION WHEN {_OF_DATA} THEN
                        FOR ckpt_item IN
                            SELECT ctid AS place, {NUMBER} AS number FROM {stage}
                            WHERE ctid = ANY (ckpt_block.places) ORDER BY {NUMBER}
                        LOOP
                            BEGIN
                                {self._insert(self._lenient, stage, "WHERE s.ctid = ckpt_item.place")}
                            EXCEPTION WHEN {_OF_DATA} THEN
                                GET STACKED DIAGNOSTICS
                                    ckpt_detail = PG_EXCEPTION_DETAIL, ckpt_context = PG_EXCEPTION_CONTEXT;
                                INSERT INTO pg_temp.{_BAD} VALUES (ckpt_item.number, SQLSTATE, SQLERRM, concat_ws(
                                    E'\\n', 'ERROR: ' || SQLSTATE || ': ' || SQLERRM,
                                    'DETAIL: ' || nullif(ckpt_detail, ''), 'CONTEXT: ' || ckpt_context));
                            END;
                        END LOOP;
                    END;
                END LOOP;
            END"""
        return f"DO {_dollar_quoted(body)};"


def _dollar_quoted(body: str) -> str:
    tag = "$ckpt$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{body}{tag}"


def deliver_with_care(
    rows: pa.Table,
    sender: Rows,
    run: Callable[[str], None],
    *,
    cast: bool,
    is_data_error: Callable[[Exception], bool],
) -> Mapping[int, ErrorInfo]:
    """Put a batch into the target that :meth:`Rows.send` could not.

    :param run: runs statements in the transaction
    :param cast: whether all rows together are worth another try
    :return: errors of the records that were left out, by number
    """
    from adbc_driver_manager import Error

    def attempt(send: Callable[[pa.Table], dict[int, ErrorInfo] | None], before: str = "") -> Mapping[int, ErrorInfo]:
        run(f"SAVEPOINT ckpt_rows; {before}")
        left_out = send(rows)
        run(CHECK)
        return left_out or {}

    again = "ROLLBACK TO SAVEPOINT ckpt_rows"
    if cast:
        try:
            return attempt(sender.cast)
        except Error as error:
            if not is_data_error(error):
                raise
        run(again)
    try:
        return attempt(sender.send_each)
    except Error as error:
        if not is_data_error(error):
            raise
    run(again)
    return attempt(sender.send_each, CHECK)
