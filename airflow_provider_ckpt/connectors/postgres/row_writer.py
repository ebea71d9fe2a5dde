"""Write a batch's rows to the target in the writer's transaction: all at once, or one by one if some are bad.

All at once, they are sent by binary COPY into the target, or through a temporary table where values need a cast or rows
replace others. One by one, each row of a block that fails is inserted in an exception block of PL/pgSQL, so that only
the bad records are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.binary_copy import ColumnEncoding, column_encodings, encode_rows
from airflow_provider_ckpt.connectors.postgres.client import literal, quote, without_values
from airflow_provider_ckpt.connectors.postgres.exact_values import MISFIT_PREFIX
from airflow_provider_ckpt.connectors.postgres.row_count import RowCounter
from airflow_provider_ckpt.connectors.postgres.row_errors import (
    OF_A_ROW,
    OF_DATA,
    OF_FUNCTIONS,
    OF_NAMES,
    OF_SEVERAL,
    OF_SYNTAX,
    may_be_of_rows,
)
from airflow_provider_ckpt.connectors.postgres.table import Table
from airflow_provider_ckpt.connectors.postgres.upsert_key import KeyColumn
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

_BAD_ROWS = "ckpt_bad"
CHECK_CONSTRAINTS = "SET CONSTRAINTS ALL IMMEDIATE"
"""Statement that checks now the constraints that are deferred to the commit.

A failure can then still be traced to its row.
"""

_MISFIT_STATE = "22000"

_BLOCK_ROWS = 64
"""Number of rows that are first inserted together when rows are written one by one."""

_PART_ROWS = 8
"""Number of rows of a failed block that are inserted together before each is inserted alone."""


class RowWriter:
    """Writer of rows for batches of one Arrow schema.

    :param cursor: an ADBC cursor of the lane's connection, on which a transaction is open whenever a method is called
    :param target: the target table
    :param schema: Arrow schema of the batches
    :param key: the target's key columns for an upsert; empty for append
    :param count: SQL that counts the rows that the transaction adds to the target
    :param direct: whether COPY may write to the target itself, which rules and row level security exclude
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

        :param rows: the rows, with their numbers
        :raises pyarrow.ArrowInvalid: if a value has no binary form in the target's type; :meth:`write_cast` may still
            succeed
        """
        if self._direct and not self._key and all(field.direct for field in self._strict):
            self._ingest(self._target.name, encode_rows(rows, self._strict), db_schema_name=self._target.schema)
        else:
            stage = self._stage(rows, self._strict)
            self._script(self._insert_all(self._strict, stage))

    def write_cast(self, rows: pa.Table) -> None:
        """Write all rows at once, or fail; the server casts every value to the target's type.

        :param rows: the rows, with their numbers
        """
        stage = self._stage(rows, self._lenient)
        self._script(self._insert_all(self._lenient, stage))

    def write_each(self, rows: pa.Table) -> dict[int, ErrorInfo]:
        """Write those rows that the target accepts.

        :param rows: the rows, with their numbers
        :return: errors of the refused rows, by row number
        """
        stage = self._stage(rows, self._lenient)
        self._script(
            f"CREATE TEMP TABLE IF NOT EXISTS {_BAD_ROWS}"
            " (number bigint, sqlstate text, message text, trace text, field text)"
            f" ON COMMIT DELETE ROWS; {self._block(stage)}"
        )
        self._cursor.execute(f"SELECT number, sqlstate, message, trace, field FROM pg_temp.{_BAD_ROWS} ORDER BY number")
        found = {number: _to_error_info(*info) for number, *info in self._cursor.fetchall()}
        return found if self._may_show_values else {number: _without_values(error) for number, error in found.items()}

    @property
    def counting(self) -> RowCounter:
        """SQL that counts the rows that the transaction adds to the target."""
        return self._count

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
        """Return an SQL expression of the number of rows that the target should gain from a temporary table.

        For an upsert, rows with the same key count as one.
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

    def _block(self, stage: str) -> str:
        """Return a DO statement that inserts the rows of a temporary table in blocks, each in a subtransaction.

        A block that fails is inserted again in parts, and a part that fails row by row. Bad rows are left out and
        recorded.

        An error that a function of the target raises counts as an error of its row if any row is accepted; else the
        batch fails.

        :param stage: name of the temporary table
        """
        body = f"""
            #variable_conflict use_column
            DECLARE ckpt_block record; ckpt_part record; ckpt_item record;
                ckpt_detail text; ckpt_context text; ckpt_field text;
                ckpt_before bigint; ckpt_added bigint := 0; ckpt_sent bigint := 0;
                ckpt_state text; ckpt_told text; ckpt_raised text; ckpt_why text; ckpt_unread boolean;
            BEGIN
                FOR ckpt_block IN {_places(stage, _BLOCK_ROWS)} LOOP
                    BEGIN
                        {self._counted(stage, "WHERE s.ctid = ANY (ckpt_block.places)")}
                        CONTINUE;
                    EXCEPTION WHEN OTHERS OR assert_failure THEN
                        IF SQLSTATE !~ '{OF_SEVERAL}' THEN RAISE; END IF;
                    END;
                    FOR ckpt_part IN {_places(stage, _PART_ROWS, "WHERE ctid = ANY (ckpt_block.places)")} LOOP
                        BEGIN
                            {self._counted(stage, "WHERE s.ctid = ANY (ckpt_part.places)")}
                            CONTINUE;
                        EXCEPTION WHEN OTHERS OR assert_failure THEN
                            IF SQLSTATE !~ '{OF_SEVERAL}' THEN RAISE; END IF;
                        END;
                        FOR ckpt_item IN
                            SELECT ctid AS place, {ROW_NUMBER} AS number FROM {stage}
                            WHERE ctid = ANY (ckpt_part.places) ORDER BY {ROW_NUMBER}
                        LOOP
                            BEGIN
                                {self._counted(stage, "WHERE s.ctid = ckpt_item.place")}
                            EXCEPTION WHEN OTHERS OR assert_failure THEN
                                IF SQLSTATE !~ '{OF_A_ROW}' THEN RAISE; END IF;
                                GET STACKED DIAGNOSTICS
                                    ckpt_state = RETURNED_SQLSTATE, ckpt_told = MESSAGE_TEXT,
                                    ckpt_detail = PG_EXCEPTION_DETAIL, ckpt_context = PG_EXCEPTION_CONTEXT;
                                IF ckpt_state ~ '{OF_FUNCTIONS}' THEN
                                    ckpt_why := coalesce(ckpt_why, ckpt_told);
                                    ckpt_raised := coalesce(ckpt_raised, ckpt_state);
                                ELSIF ckpt_state !~ '{OF_DATA}' THEN
                                    ckpt_unread := false;
                                    {self._reading_failed(stage)}
                                    IF NOT ckpt_unread THEN RAISE; END IF;
                                END IF;
                                ckpt_field := NULL;
                                {self._find_bad_column(stage)}
                                INSERT INTO pg_temp.{_BAD_ROWS} VALUES (ckpt_item.number, SQLSTATE, SQLERRM, concat_ws(
                                    E'\\n', 'ERROR: ' || SQLSTATE || ': ' || SQLERRM,
                                    'DETAIL: ' || nullif(ckpt_detail, ''), 'CONTEXT: ' || ckpt_context), ckpt_field);
                            END;
                        END LOOP;
                    END LOOP;
                END LOOP;
                IF ckpt_raised IS NOT NULL AND ckpt_sent = 0 THEN
                    RAISE EXCEPTION USING ERRCODE = ckpt_raised, MESSAGE = ckpt_why;
                END IF;
                PERFORM {self._count.restart("ckpt_added")}, {self._count.set_sent("ckpt_sent")};
            END"""
        return f"DO {_dollar_quoted(body)};"

    def _reading_failed(self, stage: str) -> str:
        """Return PL/pgSQL that sets ``ckpt_unread`` if the current row's error comes from parsing a value.

        An error of the same SQLSTATE from a trigger does not set it.
        """
        tried = []
        for field in self._lenient:
            states = OF_SYNTAX
            if self._target.by_name[field.name].element.startswith("reg"):
                states = f"{OF_SYNTAX}|{OF_NAMES}"
            tried.append(f"""
                                    BEGIN
                                        PERFORM {field.value} FROM {stage} AS s WHERE s.ctid = ckpt_item.place;
                                    EXCEPTION WHEN OTHERS THEN
                                        ckpt_unread := ckpt_unread OR SQLSTATE ~ '{states}';
                                    END;""")
        return "".join(tried)

    def _find_bad_column(self, stage: str) -> str:
        """Return PL/pgSQL that stores in ``ckpt_field`` the name of the column that causes the current row's error.

        Return an empty text if messages may show values, since the column is not needed then.
        """
        if self._may_show_values:
            return ""
        return "".join(
            f"""
                                BEGIN
                                    PERFORM {self._target.by_name[field.name].as_stored(field.exact)}
                                    FROM {stage} AS s WHERE s.ctid = ckpt_item.place;
                                EXCEPTION WHEN data_exception OR syntax_error_or_access_rule_violation
                                    OR invalid_schema_name OR internal_error THEN
                                    ckpt_field := {literal(field.name)};
                                END;"""
            for field in self._lenient
        )

    def _counted(self, stage: str, where: str) -> str:
        """Return PL/pgSQL that inserts some rows and adds their number to ``ckpt_added`` and ``ckpt_sent``.

        Rows of a failed INSERT are not counted, although the server's own counters include what was rolled back.

        :param stage: name of the temporary table
        :param where: WHERE clause for the rows to insert
        """
        return f"""
            ckpt_before := {self._count.current};
            {self._insert(self._lenient, stage, where)}
            ckpt_added := ckpt_added + {self._count.current} - ckpt_before;
            ckpt_sent := ckpt_sent + {self._number(self._lenient, stage, where)};"""


def _places(stage: str, number: int, where: str = "") -> str:
    """Return a query of the locations (ctid) of a temporary table's rows, in row order, in arrays.

    :param stage: name of the temporary table
    :param number: number of rows in each array
    :param where: WHERE clause for the rows to include
    """
    return f"""
        SELECT array_agg(ctid) AS places FROM (
            SELECT ctid, (row_number() OVER (ORDER BY {ROW_NUMBER}) - 1) / {number} AS block FROM {stage} {where}
        ) AS ranked GROUP BY block ORDER BY block"""


def _without_values(error: ErrorInfo) -> ErrorInfo:
    unread = re.search(f"{OF_SYNTAX}|{OF_NAMES}", error.sqlstate or "")
    return replace(error, message=without_values(error.message, "22000" if unread else error.sqlstate), trace=None)


def _to_error_info(sqlstate: str, message: str, trace: str, field: str | None) -> ErrorInfo:
    misfit = message.partition(MISFIT_PREFIX)[2]
    if misfit:
        return ErrorInfo(ErrorType.SINK, misfit.removesuffix('"'), False, _MISFIT_STATE, trace=trace)
    where = f"column {field}: " if field else ""
    return ErrorInfo(ErrorType.SINK, f"{where}{message}", False, sqlstate, trace=trace)


def _dollar_quoted(body: str) -> str:
    tag = "$ckpt$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{body}{tag}"


def write_good_rows(
    rows: pa.Table,
    sender: RowWriter,
    run: Callable[[str], None],
    *,
    cast: bool,
) -> Mapping[int, ErrorInfo]:
    """Write a batch's rows without its bad records, after :meth:`RowWriter.write` has failed.

    :param rows: the rows, with their numbers
    :param sender: the writer of rows for this batch
    :param run: function that runs SQL statements in the batch's transaction
    :param cast: whether to try first to write all rows at once, with casts by the server
    :return: errors of the bad records, by row number
    """
    from adbc_driver_manager import Error

    def attempt(send: Callable[[pa.Table], dict[int, ErrorInfo] | None], before: str = "") -> Mapping[int, ErrorInfo]:
        run(f"SAVEPOINT ckpt_rows; SELECT {sender.counting.start(rows.num_rows)}; {before}")
        left_out = send(rows)
        run(CHECK_CONSTRAINTS)
        return left_out or {}

    rollback = "ROLLBACK TO SAVEPOINT ckpt_rows"
    if cast:
        try:
            return attempt(sender.write_cast)
        except Error as error:
            if not may_be_of_rows(error):
                raise
        run(rollback)
    try:
        return attempt(sender.write_each)
    except Error as error:
        if not may_be_of_rows(error):
            raise
    run(rollback)
    return attempt(sender.write_each, CHECK_CONSTRAINTS)
