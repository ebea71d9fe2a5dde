"""Apply the user's Python function to the rows of a batch, as an Arrow table: the last step of the transform.

It runs inside the lane, after Spark SQL and before the sink. The function returns one row for each row that it gets, in
the same order, so that the lane keeps its order and its counts. If the function raises an error, it is called again
with each half of the rows, until the rows that cause the error are found; only these become dead letters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, InvalidTransformError
from airflow_provider_ckpt.spark.failures import to_error_info

if TYPE_CHECKING:
    import pyarrow as pa

Function = Callable[["pa.Table"], Any]
"""The user's function. It takes a :class:`pyarrow.Table`, and returns a table, a record batch or a pandas
data frame.
"""

KEEP = "_keep"
"""Name of a boolean column that the function may add; rows in which it is not true are not delivered and count as
filtered.
"""

_HINT = "Return one row for each, in their order, with just the columns of transform.returns (and _keep, to filter)."


@dataclass(slots=True)
class FunctionResult:
    """Result of applying the user's function to the rows of a batch.

    :param rows: rows to deliver; the first column is the number of the record in the batch, the others are those of
        ``transform.returns``
    :param filtered: number of rows that the function excluded, by a value other than true in its column :data:`KEEP`
    :param errors: the error of each row that becomes a dead letter, by number of the record
    """

    rows: pa.Table
    filtered: int = 0
    errors: dict[int, ErrorInfo] = field(default_factory=dict)


def pack(function: Function) -> bytes:
    """Serialize a function for Spark, together with everything that it uses from the module that defines it.

    Other modules that the function uses must be importable on the driver and the executors.

    :param function: the user's function
    """
    from pyspark import cloudpickle

    unwrapped = function.func if isinstance(function, partial) else function
    module = sys.modules.get(getattr(unwrapped, "__module__", None) or "")
    if module is None:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def unpack(packed: bytes) -> Function:
    """Return the function that :func:`pack` serialized.

    :param packed: the serialized function
    """
    import pickle

    found: Function = pickle.loads(packed)  # noqa: S301  # packed by this run's own task, in a directory of mode 0700
    return found


def import_function(path: str) -> Function:
    """Import a function by name.

    :param path: ``module:function``
    :raises InvalidTransformError: if the module or the function does not exist
    """
    module, _, name = path.partition(":")
    try:
        found: Function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidTransformError(
            f"transform.python cannot be imported: {error}",
            hint=f"{path} must be importable on the driver and the executors.",
        ) from error
    return found


def apply(function: Function, rows: pa.Table, returns: pa.Schema, *, traced: bool = False) -> FunctionResult:
    """Call the user's function with the rows of a batch, and return the rows to deliver and the errors.

    :param function: the user's function
    :param rows: the record number, then the columns that the SQL part of the transform outputs
    :param returns: names and types of the columns that the function must return
    :param traced: whether errors include the traceback
    :raises InvalidTransformError: if the function does not return a table with as many rows and the right columns
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    applied = FunctionResult(rows)
    done = list(_results(function, rows, returns, applied.errors, traced)) if rows.num_rows else []
    schema = pa.schema([pa.field(ROW_NUMBER, pa.int64()), *returns])
    kept = []
    for table in done:
        if KEEP in table.column_names:
            keep = pc.fill_null(table.column(KEEP), False)
            applied.filtered += table.num_rows - (pc.sum(keep).as_py() or 0)
            table = table.filter(keep).drop_columns([KEEP])
        kept.append(table)
    applied.rows = pa.concat_tables(kept) if kept else schema.empty_table()
    return applied


def _results(
    function: Function, rows: pa.Table, returns: pa.Schema, errors: dict[int, ErrorInfo], traced: bool
) -> Iterator[pa.Table]:
    """Yield the function's results in order; after an error, call it with each half of the rows instead.

    :param function: the user's function
    :param rows: the record number, then the columns for the function
    :param returns: names and types of the columns that the function must return
    :param errors: errors by record number; an error that occurs for a single row is added
    :param traced: whether these errors include the traceback
    """
    try:
        yield _call(function, rows, returns)
    except InvalidTransformError:
        raise
    except Exception as error:  # noqa: BLE001  # boundary to the user's code: any error costs one record
        if rows.num_rows == 1:
            info = to_error_info(error, traced=traced, otherwise=ErrorType.PROCESSING)
            errors[rows.column(ROW_NUMBER)[0].as_py()] = info
            return
        middle = rows.num_rows // 2
        for half in (rows.slice(0, middle), rows.slice(middle)):
            yield from _results(function, half, returns, errors, traced)


def _call(function: Function, rows: pa.Table, returns: pa.Schema) -> pa.Table:
    """Call the function once, and return its result with the record numbers, cast to the types of ``returns``.

    The function's own error is raised as it is, and so is that of pyarrow if a value cannot be cast.

    :param function: the user's function
    :param rows: the record number, then the columns for the function
    :param returns: names and types of the columns that the function must return
    :raises InvalidTransformError: if the function returns another number of rows or other columns
    """
    import pyarrow as pa

    given = _to_table(function(rows.drop_columns([ROW_NUMBER])))
    if given.num_rows != rows.num_rows:
        raise InvalidTransformError(
            f"the function of transform.python got {rows.num_rows} rows and returned {given.num_rows}.", hint=_HINT
        )
    wanted = [*returns.names, *([KEEP] if KEEP in given.column_names else [])]
    if sorted(given.column_names) != sorted(wanted):
        raise InvalidTransformError(
            f"the function of transform.python returned the columns {', '.join(given.column_names)}, "
            f"but transform.returns has {', '.join(returns.names)}.",
            hint=_HINT,
        )
    columns = [given.column(item.name).cast(item.type) for item in returns]
    fields = [rows.schema.field(ROW_NUMBER), *returns]
    if KEEP in wanted:
        columns.append(given.column(KEEP).cast(pa.bool_()))
        fields.append(pa.field(KEEP, pa.bool_()))
    return pa.Table.from_arrays([rows.column(ROW_NUMBER), *columns], schema=pa.schema(fields))


def _to_table(given: object) -> pa.Table:
    """Convert the result of the user's function to an Arrow table.

    :param given: the result
    :raises InvalidTransformError: if the result is not an Arrow table, a record batch or a pandas data frame
    """
    import pyarrow as pa

    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    raise InvalidTransformError(
        f"the function of transform.python returned a {type(given).__name__}.",
        hint="Return a pyarrow.Table, a pyarrow.RecordBatch or a pandas.DataFrame.",
    )
