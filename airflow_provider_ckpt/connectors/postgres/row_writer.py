"""Write all rows of a batch to the target at once, in the writer's transaction, or fail.

Rows are sent by binary COPY into the target, or through a temporary table where values need a cast or rows replace
others. If this fails, ``bad_row_isolation.py`` writes the batch without the rows that the target refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.binary_copy import ColumnEncoding, column_encodings, encode_rows
from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.row_count import RowCounter
from airflow_provider_ckpt.connectors.postgres.table import Table
from airflow_provider_ckpt.connectors.postgres.upsert_key import KeyColumn
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

CHECK_CONSTRAINTS = "SET CONSTRAINTS ALL IMMEDIATE"
"""Statement that checks now the constraints that are deferred to the commit.

A failure can then still be traced to its row.
"""


class RowWriter:
    """Writer of rows for batches of one Arrow schema.

    :param cursor: an ADBC cursor of the lane's connection, on which a transaction is open whenever a method is called
    :param target: the target table
    :param schema: Arrow schema of the batches
    :param key: the target's key columns for an upsert; empty for append
    :param count: generator of the SQL that counts the rows that the transaction adds to the target
    :param direct: whether COPY may write to the target itself; False if the target has rules or row level security
    :param may_show_values: whether error messages may show values of records; otherwise they name the column
    :raises ConfigError: if rows of this schema cannot be written to the target
    """

    def __init__(
        self,
        cursor: Any,
        target: Table,
        schema: pa.Schema,
        key: Sequence[KeyColumn],
        count: RowCounter,
        *,
        direct: bool,
        may_show_values: bool,
    ) -> None:
        self._cursor = cursor
        self._target = target
        self._key = key
        self._count = count
        self._direct = direct
        self._may_show_values = may_show_values
        self._strict = column_encodings(schema, target, strict=True)
        self._lenient = column_encodings(schema, target, strict=False)

    def write(self, rows: pa.Table) -> None:
        """Write all rows at once, or fail.

        :param rows: the rows, with the column :data:`~.sink_protocol.ROW_NUMBER`
        :raises pyarrow.ArrowInvalid: if a value has no binary form in the target's type; :meth:`write_cast` may still
            succeed
        :raises adbc_driver_manager.Error: if the server reports an error; the transaction is then aborted
        """
        if self._direct and not self._key and all(field.direct for field in self._strict):
            self._ingest(self._target.name, encode_rows(rows, self._strict), db_schema_name=self._target.schema)
        else:
            stage = self._stage(rows, self._strict)
            self._script(self._insert_all(self._strict, stage))

    def write_cast(self, rows: pa.Table) -> None:
        """Write all rows at once, or fail; the server casts every value to the target's type.

        :param rows: the rows, with the column :data:`~.sink_protocol.ROW_NUMBER`
        :raises adbc_driver_manager.Error: if the server reports an error; the transaction is then aborted
        """
        stage = self._stage(rows, self._lenient)
        self._script(self._insert_all(self._lenient, stage))

    def _script(self, statements: str) -> None:
        self._cursor.executescript(statements)

    def _ingest(self, table: str, rows: pa.Table, **where: Any) -> None:
        self._cursor.adbc_ingest(table, rows, mode="append", **where)

    def _stage(self, rows: pa.Table, chosen: Sequence[ColumnEncoding]) -> str:
        import pyarrow as pa

        columns = ", ".join(f"{quote(field.name)} {field.stage_type}" for field in chosen)
        name = "ckpt_stage_" + hashlib.sha256(columns.encode()).hexdigest()[:16]
        self._script(
            f"CREATE TEMP TABLE IF NOT EXISTS {name} ({ROW_NUMBER} bigint{', ' + columns if columns else ''})"
            " ON COMMIT DELETE ROWS"
        )
        sent = encode_rows(rows, chosen)
        numbered = pa.table([rows.column(ROW_NUMBER), *sent.columns], [ROW_NUMBER, *sent.column_names])
        self._ingest(name, numbered, temporary=True)
        return f"pg_temp.{name}"

    def _insert_all(self, chosen: Sequence[ColumnEncoding], stage: str) -> str:
        insert = self._insert(chosen, stage)
        return f"{insert} SELECT {self._count.set_sent(self._number(chosen, stage))};" if self._key else insert

    def _number(self, chosen: Sequence[ColumnEncoding], stage: str, where: str = "") -> str:
        """Return an SQL expression of the number of rows that are to reach the target from a temporary table.

        For an upsert, rows with the same key count as one, and rows that replace others count too.

        :param chosen: conversions of the columns, by which keys are compared
        :param stage: name of the temporary table
        :param where: WHERE clause for the rows to count
        """
        distinct = f"DISTINCT {self._keys(chosen)}" if self._key else "1"
        return f"(SELECT count(*) FROM (SELECT {distinct} FROM {stage} AS s {where}) AS ckpt_chosen)"

    def _keys(self, chosen: Sequence[ColumnEncoding]) -> str:
        values = {field.name: field.value for field in chosen}
        return ", ".join(part.comparable(values[part.name]) for part in self._key)

    def _insert(self, chosen: Sequence[ColumnEncoding], stage: str, where: str = "") -> str:
        names = ", ".join(quote(field.name) for field in chosen)
        key = {part.name for part in self._key}
        values = ", ".join(field.value if field.name in key else field.exact for field in chosen)
        newest, order, replace = "", f"s.{ROW_NUMBER}", ""
        if self._key:
            keys = self._keys(chosen)
            newest, order = f"DISTINCT ON ({keys})", f"{keys}, s.{ROW_NUMBER} DESC"
            replace = self._on_conflict([field.name for field in chosen])
        return (
            f"INSERT INTO {self._target.sql} AS ckpt_target ({names}) OVERRIDING SYSTEM VALUE "
            f"SELECT {newest} {values} FROM {stage} AS s {where} ORDER BY {order} {replace};"
        )

    def _on_conflict(self, names: Sequence[str]) -> str:
        """Return the ON CONFLICT clause of an upsert, which replaces the existing row.

        If all sent columns are key columns, a column of the row is set to its own value, so that the row is counted.

        :param names: names of the columns that are sent
        :raises ConfigError: if no column of the target can be written
        """
        key = [part.name for part in self._key]
        mutable = [name for name, column in self._target.by_name.items() if column.identity != "a"]
        others = [name for name in names if name in mutable and name not in key]
        unchanged = next((name for name in mutable if not self._target.by_name[name].generated), None)
        if others:
            changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
        elif unchanged is not None:
            changes = f"{quote(unchanged)} = ckpt_target.{quote(unchanged)}"
        else:
            raise ConfigError(
                f"target {self._target.label} has no column that an upsert could write: all are generated.",
                hint="Use mode: append.",
            )
        return f"ON CONFLICT ({', '.join(map(quote, key))}) DO UPDATE SET {changes}"
