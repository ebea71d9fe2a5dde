"""Write a batch without its bad rows: the rows that the target refuses are left out, all others are written.

Rows are inserted in blocks of 64, each in an exception block of PL/pgSQL. A block that fails is inserted again in
smaller parts, and at last row by row, so that only the bad rows are left out. The lane then makes dead letters of them
(semantics, section 7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.client import literal, without_values
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
from airflow_provider_ckpt.connectors.postgres.row_writer import CHECK_CONSTRAINTS, RowWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

_BAD_ROWS = "ckpt_bad"
_MISFIT_STATE = "22000"

_BLOCK_ROWS = 64
"""Number of rows in a block: the rows of a batch that are first inserted together, in one exception block of PL/pgSQL.
"""

_PART_ROWS = 8
"""Number of rows in a part: the rows of a failed block that are inserted together before each is inserted alone."""


class IsolatingRowWriter(RowWriter):
    """Row writer for a batch with bad rows: it writes the rows that the target accepts, and reports the others.

    For the parameters see :class:`RowWriter`.
    """

    def write_each(self, rows: pa.Table) -> dict[int, ErrorInfo]:
        """Write the rows that the target accepts, and leave out those that it refuses.

        :param rows: the rows, with the column :data:`~.sink_protocol.ROW_NUMBER`
        :return: errors of the refused rows, by row number
        :raises adbc_driver_manager.Error: if the server reports an error that no single row causes
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
        """The generator of the SQL that counts the rows which the batch's transaction adds to the target."""
        return self._count

    def _block(self, stage: str) -> str:
        """Return a DO statement that inserts the rows of a temporary table in blocks, each in a subtransaction.

        A block that fails is inserted again in parts, and a part that fails row by row. Bad rows are left out; their
        errors are written to the temporary table :data:`_BAD_ROWS`.

        If a function of the target, such as a trigger's, raises an error, this counts as an error of the row if the
        target accepts at least one row of the batch; otherwise the whole statement fails with that error.

        :param stage: name of the temporary table that holds the batch's rows
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
        """Return PL/pgSQL that sets ``ckpt_unread`` if the row that was just refused has a value that does not parse.

        A row for which the variable is set is left out as bad. If instead a trigger of the target raised an error of
        the same SQLSTATE, the variable is not set, and the statement fails.

        :param stage: name of the temporary table that holds the batch's rows
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
        """Return PL/pgSQL that stores in ``ckpt_field`` the name of the column for which the target refused a row.

        Return an empty text if error messages may show values: the server's message is then used unchanged.

        :param stage: name of the temporary table that holds the batch's rows
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
        """Return PL/pgSQL that inserts some rows, and adds to the counts ``ckpt_sent`` and ``ckpt_added``.

        ``ckpt_sent`` counts the rows that were sent, and ``ckpt_added`` the rows that the target gained: a trigger may
        add or drop rows. Rows of a failed INSERT are not counted, although the server's own counters include rows that
        were rolled back.

        :param stage: name of the temporary table that holds the batch's rows
        :param where: WHERE clause for the rows to insert
        """
        return f"""
            ckpt_before := {self._count.current};
            {self._insert(self._lenient, stage, where)}
            ckpt_added := ckpt_added + {self._count.current} - ckpt_before;
            ckpt_sent := ckpt_sent + {self._number(self._lenient, stage, where)};"""


def _places(stage: str, number: int, where: str = "") -> str:
    """Return a query of the locations (ctid) of a temporary table's rows, in arrays, ordered by row number.

    :param stage: name of the temporary table that holds the batch's rows
    :param number: maximum number of rows in each array
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
    sender: IsolatingRowWriter,
    run: Callable[[str], None],
    *,
    cast: bool,
) -> Mapping[int, ErrorInfo]:
    """Write a batch's rows without those that the target refuses, after :meth:`RowWriter.write` has failed.

    Call it in a new transaction that has claimed the batch's receipt; it may set savepoints and return to them.

    :param rows: the rows, with the column :data:`~.sink_protocol.ROW_NUMBER`
    :param sender: writer for rows of this schema
    :param run: function that runs SQL statements in the batch's transaction
    :param cast: whether to try first to write all rows at once, with casts by the server (:meth:`RowWriter.write_cast`)
    :return: errors of the refused rows, by row number
    :raises adbc_driver_manager.Error: if the server reports an error that no single row causes
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
