"""Send rows to MySQL and MariaDB in bulk, and fetch results without decoding each value.

``LOAD DATA LOCAL`` turns errors into warnings and skips duplicates. So a load with a warning, or with fewer rows than
were sent, is rolled back. The rows are then sent again by INSERT, which fails in strict mode, so that the bad rows are
found.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.connections import Connection as DriverConnection
from pymysql.connections import MySQLResult

from airflow_provider_ckpt.connectors.sql.columns import Kind, Table
from airflow_provider_ckpt.connectors.sql.mysql_result import read_columns
from airflow_provider_ckpt.connectors.sql.mysql_table import quote
from airflow_provider_ckpt.core.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

_FEW_ROWS = 50
"""Number of rows up to which INSERT is as fast as LOAD DATA."""

_CHUNK_BYTES = 1 << 20
_MANY_BYTES = 1 << 20
"""Size in bytes from which on LOAD DATA is used for few rows, too."""

_MAY_BE_TOO_LONG = 1 << 19
"""Size of rows in bytes below which none of them exceeds the smallest usual ``max_allowed_packet``."""

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0"))
_NULL = "\\N"
_ASSIGNED = {Kind.BINARY: "UNHEX({})", Kind.BIT: "CAST({} AS UNSIGNED)"}
"""SQL expressions that convert a text which LOAD DATA has read (``{}``), by the kinds of column that need this."""

_LONGEST_ESCAPE = 4
"""Greatest number of bytes that one character or byte of a value takes in a statement."""

_STATEMENT_BYTES = 1 << 16
"""Room for the names of table and columns in a statement, in bytes."""

_SAVEPOINT = "ckpt_load"


class _MemoryResult(MySQLResult):  # type: ignore[misc]  # the driver has no types
    """The driver's result of a statement, changed to send rows from memory and to read the result by columns."""

    connection: Any
    columns: Sequence[pa.Array] = ()

    def _read_rowdata_packet(self) -> None:
        if not self.connection.as_columns:
            super()._read_rowdata_packet()
            return
        self.columns = read_columns(self.connection, self.field_count)
        self.connection = None  # as the driver does, so that no cycle of references remains
        self.affected_rows = len(self.columns[0])
        self.rows = ()

    def _read_load_local_packet(self, _: Any) -> None:
        connection = self.connection
        pieces, connection.to_load = connection.to_load, None
        for piece in pieces or ():
            for start in range(0, piece.size, _CHUNK_BYTES):
                connection.write_packet(piece[start : start + _CHUNK_BYTES])
        connection.write_packet(b"")
        answer = connection._read_packet()
        if pieces is None:
            raise pymysql.err.OperationalError(2068, "the server asked for a file although no rows were to be loaded")
        self._read_ok_packet(answer)


class MemoryConnection(DriverConnection):  # type: ignore[misc]  # the driver has no types
    """Connection of the driver that sends the bytes in :attr:`to_load` instead of the file that the server asks for.

    The driver's own class would send any file of this machine that a server names.
    """

    to_load: Sequence[pa.Buffer] | None = None
    _result: Any
    as_columns = False
    may_load: bool | None = None

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:  # the driver's method
        """Return the context for TLS; without settings, verify no certificate, as the driver's own context does.

        The driver's method would also load all certificates of the system for each connection, which takes longer than
        all other steps of connecting. Without verification, they are not used.

        :param sslp: the context; empty for the mode ``PREFERRED`` without files
        """
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[no-any-return]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def _read_query_result(self, unbuffered: bool = False) -> Any:  # the driver's signature
        self._result = None
        result = _MemoryResult(self)
        result.init_unbuffered_query() if unbuffered else result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


def is_worthwhile(connection: sa.Connection, rows: pa.Table) -> bool:
    """Return whether server and connection allow LOAD DATA LOCAL, and it is faster than INSERT for the given rows.

    :param connection: an open connection
    :param rows: the rows
    """
    if rows.num_rows <= _FEW_ROWS and rows.nbytes < _MANY_BYTES:
        return False
    driver = _driver(connection)
    if driver.may_load is None:
        allowed = connection.exec_driver_sql("SELECT @@GLOBAL.local_infile").scalar()
        driver.may_load = bool(allowed) and bool(driver._local_infile)
    return driver.may_load


def load(connection: sa.Connection, target: Table, rows: pa.Table) -> int:
    """Write rows by LOAD DATA LOCAL; if the server warns or takes fewer rows, write all rows by INSERT instead.

    :param connection: the connection, in a transaction
    :param target: the target
    :param rows: the rows, converted for the target
    :return: number of rows that the server has taken
    """
    driver = _driver(connection)
    statement = _load_statement(target, rows.schema.names)
    connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
    driver.to_load = _lines(target, rows)
    result = connection.exec_driver_sql(statement)
    warnings = driver._result.warning_count
    if result.rowcount == rows.num_rows and not warnings:
        return int(rows.num_rows)
    connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
    return insert(connection, target, rows, ())


def insert(connection: sa.Connection, target: Table, rows: pa.Table, key: Sequence[str]) -> int:
    """Write rows by INSERT statements of many rows.

    :param connection: the connection, in a transaction
    :param target: the target
    :param rows: the rows, converted for the target
    :param key: key columns of an upsert; empty to insert
    :return: number of rows that the server has taken; a replaced row counts as one, although the server counts it twice
    """
    names = rows.schema.names
    columns = ", ".join(_escaped(name) for name in names)
    places = ", ".join("%s" for _ in names)
    statement = f"INSERT INTO {_table(target).replace('%', '%%')} ({columns}) VALUES ({places})"
    if key:
        others = [name for name in names if name not in key] or list(key[:1])
        replaced = ", ".join(f"{_escaped(name)} = VALUES({_escaped(name)})" for name in others)
        statement += f" ON DUPLICATE KEY UPDATE {replaced}"
    values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    if rows.nbytes >= _MAY_BE_TOO_LONG:
        found = find_long_row(connection, values)
        if found is not None:
            raise SinkError(
                f"a row for {target.label} {found[1]}; raise max_allowed_packet of the server, or leave the long "
                "column out by source.columns."
            )
    taken = int(connection.exec_driver_sql(statement, values).rowcount)
    if key and rows.num_rows <= taken <= 2 * rows.num_rows:
        return int(rows.num_rows)
    return taken


def find_long_row(connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> tuple[int, str] | None:
    """Return the index of a row that does not fit into one statement, for which the server would end the connection.

    :param connection: the connection
    :param rows: the rows, as sequences of values
    :return: the index, and a clause for a message with the bytes of the row as it is sent, and those that the server
        accepts; None if all rows fit
    """
    most = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    driver = _driver(connection)
    for at, row in enumerate(rows):
        if sum(len(value) for value in row if isinstance(value, str | bytes)) * _LONGEST_ESCAPE < most:
            continue
        size = sum(len(driver.escape(value, driver.encoders).encode("utf-8", "surrogateescape")) for value in row)
        if size + _STATEMENT_BYTES > most:
            return at, f"takes {size:,} bytes in a statement, and the server accepts {most:,} (max_allowed_packet)"
    return None


def fetch_columns(connection: sa.Connection, query: sa.Executable) -> list[pa.Array]:
    """Return the result of a query column by column, each value as the bytes of the server's text.

    :param connection: an open connection
    :param query: the query
    """
    driver = _driver(connection)
    driver.as_columns = True
    try:
        connection.execute(query).close()
    finally:
        driver.as_columns = False
    columns, driver._result.columns = driver._result.columns, []
    return list(columns)


def _load_statement(target: Table, names: Sequence[str]) -> str:
    places, assigned = [], []
    for at, name in enumerate(names):
        template = _ASSIGNED.get(target.by_name[name].kind)
        places.append(quote(name) if template is None else f"@ckpt_{at}")
        if template is not None:
            assigned.append(f"{quote(name)} = {template.format(f'@ckpt_{at}')}")
    statement = (
        f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {_table(target)} CHARACTER SET utf8mb4 "
        f"FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({', '.join(places)})"
        f"{' SET ' if assigned else ''}{', '.join(assigned)}"
    )
    return statement.replace("%", "%%")


def _lines(target: Table, rows: pa.Table) -> list[pa.Buffer]:
    """Return the lines that LOAD DATA reads, one for each row, with tabs between the fields; their bytes in pieces.

    :param target: the target
    :param rows: the rows, converted for the target
    """
    import pyarrow.compute as pc

    *fields, last = [_fields(target.by_name[name].kind, rows.column(name)) for name in rows.schema.names]
    ended = pc.binary_join_element_wise(last, "", "\n", null_handling="replace", null_replacement=_NULL)
    lines = pc.binary_join_element_wise(*fields, ended, "\t", null_handling="replace", null_replacement=_NULL)
    return [_content(chunk) for chunk in lines.chunks]


def _fields(kind: Kind, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is Kind.BINARY:
        return pa.chunked_array([[None if item is None else item.hex() for item in column.to_pylist()]], pa.string())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    if any(_must_escape(chunk) for chunk in column.chunks):
        for character, escaped in _ESCAPES:
            column = pc.replace_substring(column, character, escaped)
    return column


def _must_escape(texts: pa.StringArray) -> bool:
    content = _content(texts).to_pybytes()  # searched by far faster than a kernel of Arrow searches text by text
    return any(character.encode() in content for character, _ in _ESCAPES)


def _content(texts: pa.StringArray) -> pa.Buffer:
    """Return the bytes of all texts of an array, one text directly after the other."""
    import numpy as np
    import pyarrow as pa

    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return pa.py_buffer(b"")
    first, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    return data.slice(first, end - first)


def _table(target: Table) -> str:
    return f"{quote(target.schema)}.{quote(target.name)}"


def _escaped(name: str) -> str:
    return quote(name).replace("%", "%%")


def _driver(connection: sa.Connection) -> MemoryConnection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, MemoryConnection)
    return driver
