"""Open, create, commit to and inspect a Delta table through the deltalake library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, IoError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Field
    from deltalake.transaction import AddAction

_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m|↳")
_DELETION_VECTORS = "deletionVectors"
_CONSTRAINED = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
_WRITABLE_FEATURES = frozenset(
    (
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
        "invariants", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
    )
)  # fmt: skip
"""Table features whose tables the Delta library can write; it refuses each commit to a table with another one.

A table may have one of these features without using it; :func:`refuse_unsupported` refuses what this sink cannot write.
"""

_IDENTITY_COLUMNS = 6
"""Writer version that implies the table feature ``identityColumns``."""


def load(path: Location) -> DeltaTable | None:
    """Return the newest version of a Delta table, opened; None if there is no table yet.

    :param path: directory of the table
    :raises SinkError: if the log cannot be read
    :raises IoError: if the file system fails
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path.uri, storage_options=options(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise delta_error(error, f"open the Delta table {path}") from error


def options(path: Location) -> dict[str, str] | None:
    """Return the options with which the Delta library opens the directory of a table; None for a local directory.

    :param path: directory of the table
    """
    found = path.storage_options
    return None if found is None else dict(found)


def create(path: Location, schema: pa.Schema, transactions: Mapping[str, int]) -> None:
    """Create an empty Delta table, unless there is a table already.

    :param path: directory of the table
    :param schema: columns of the table
    :param transactions: numbers to store in ``txn`` actions, by application id
    :raises SinkError: if the table cannot be created
    :raises IoError: if the file system fails
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable.create(
            path.uri,
            schema,
            mode="error",
            commit_properties=_properties(transactions, {}),
            storage_options=options(path),
        )
    except (DeltaError, OSError) as error:
        if load(path) is None:
            raise delta_error(error, f"create the Delta table {path}") from error
    _sync_log(path, 0)


def commit(
    table: DeltaTable,
    path: Location,
    actions: Sequence[AddAction],
    transactions: Mapping[str, int],
    note: Mapping[str, Any],
    *,
    replacing: bool = False,
) -> None:
    """Commit data files and ``txn`` actions as the version right after the opened one, or not at all.

    An error may be raised although the commit succeeded, for example if Delta cannot write a checkpoint of the log
    afterwards. To find out, open the table again.

    :param table: the opened version that the commit builds on
    :param path: directory of the table
    :param actions: data files to add
    :param transactions: numbers to store in ``txn`` actions, by application id
    :param note: information for users, stored as metadata of the commit
    :param replacing: whether the commit removes all files of the opened version
    :raises deltalake.exceptions.CommitFailedError: if another writer committed the next version first
    """
    table.create_write_transaction(
        list(actions),
        "overwrite" if replacing else "append",
        table.schema(),
        commit_properties=_properties(transactions, note),
    )
    _sync_log(path, table.version() + 1)


def add_columns(
    table: DeltaTable,
    path: Location,
    fields: Sequence[Field],
    transactions: Mapping[str, int],
    note: Mapping[str, Any],
) -> bool:
    """Add columns to a table as the version right after the opened one.

    :param table: the opened version to build on
    :param path: directory of the table
    :param fields: the new columns
    :param transactions: numbers to store in ``txn`` actions, by application id
    :param note: information for users, stored as metadata of the commit
    :return: False if another writer committed the next version first
    :raises SinkError: if the columns cannot be added
    :raises IoError: if the file system fails
    """
    properties = _properties(transactions, note)
    add = partial(table.alter.add_columns, list(fields), commit_properties=properties)
    return _alter(table, path, add, "add columns to")


def allow_null(
    table: DeltaTable, path: Location, column: str, transactions: Mapping[str, int], note: Mapping[str, Any]
) -> bool:
    """Drop the constraint NOT NULL of a column as the version right after the opened one.

    :param table: the opened version to build on
    :param path: directory of the table
    :param column: name of the column
    :param transactions: numbers to store in ``txn`` actions, by application id
    :param note: information for users, stored as metadata of the commit
    :return: False if another writer committed the next version first
    :raises SinkError: if the constraint cannot be dropped
    :raises IoError: if the file system fails
    """
    properties = _properties(transactions, note)
    drop = partial(table.alter.drop_column_not_null, column, commit_properties=properties)
    return _alter(table, path, drop, "drop a constraint NOT NULL of")


def _alter(table: DeltaTable, path: Location, change: Callable[[], None], operation: str) -> bool:
    """Change the metadata of a table as the version right after the opened one.

    :param table: the opened version to build on
    :param path: directory of the table
    :param change: function that commits the change, without retries
    :param operation: description of the change, as in ``add columns to``
    :return: False if another writer committed the next version first
    :raises SinkError: if the change is not possible
    :raises IoError: if the file system fails
    """
    from deltalake.exceptions import DeltaError

    try:
        change()
    except (DeltaError, OSError) as error:
        if not has_newer_version(table, path):
            raise delta_error(error, f"{operation} the Delta table {path}") from error
        return False
    _sync_log(path, table.version())
    return True


def required_columns(table: DeltaTable) -> list[str]:
    """Return the names of the table's columns that may not be null.

    :param table: the table
    """
    return [field.name for field in table.schema().fields if not field.nullable]


def refuse_unsupported(table: DeltaTable, path: Location, *, replacing: bool = False) -> None:
    """Raise an error for a table that cannot be written by adding plain files, such as a partitioned one.

    :param table: the table
    :param path: directory of the table
    :param replacing: whether the sink also removes the table's files
    :raises ConfigError: naming the unsupported features
    """
    metadata, protocol = table.metadata(), table.protocol()
    features = list(protocol.writer_features or ())
    if protocol.min_writer_version == _IDENTITY_COLUMNS:
        features.append("identityColumns")
    reasons = [
        f"the Delta library does not write tables with the feature {feature}"
        for feature in features
        if feature not in _WRITABLE_FEATURES
    ]
    reasons += [f"it is partitioned by {name}" for name in metadata.partition_columns]
    for key, value in metadata.configuration.items():
        if key.startswith("delta.constraints."):
            reasons.append(f"it has the check constraint {key.removeprefix('delta.constraints.')}")
        if (key == "delta.columnMapping.mode" and value != "none") or key == "delta.setTransactionRetentionDuration":
            reasons.append(f"its property {key} is {value}")
        if replacing and key == "delta.appendOnly" and value.lower() == "true":
            reasons.append(f"its property {key} is {value}, so sink.mode: replace may not remove its rows")
    for field in table.schema().fields:
        reasons += [f"column {field.name} has {key}" for key in _CONSTRAINED if key in (field.metadata or {})]
    if reasons:
        raise ConfigError(
            f"the delta sink cannot write to {path}: {'; '.join(reasons)}.",
            hint="Write to a table without these features, and derive this one from it.",
        )


def delta_error(error: Exception, operation: str) -> CkptError:
    """Convert an error of the Delta library to an error of this package, marked as an outage of the whole table.

    :param error: the library's error
    :param operation: description of the failed operation, as in ``open the Delta table /data/t``
    :return: an :class:`IoError` for an error of the operating system, else a :class:`SinkError`; the caller raises it
    """
    if isinstance(error, OSError):
        if error.errno is not None:
            return io_error(error, operation)
        return IoError(f"cannot {operation}: {_one_line(error)}.", is_outage=True)
    return SinkError(f"cannot {operation}: {_one_line(error)}.", recoverable=True, is_outage=True)


def _one_line(error: Exception) -> str:
    return " ".join(_TERMINAL_CODES.sub("", str(error)).split()).rstrip(".")


def _properties(transactions: Mapping[str, int], note: Mapping[str, Any]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=dict(note),
        max_commit_retries=0,
        app_transactions=[Transaction(app, version) for app, version in transactions.items()],
    )


def _sync_log(path: Location, version: int) -> None:
    """Flush the log entry of a version to the disk; do nothing if a checkpoint of the log has replaced the entry.

    :param path: directory of the table
    :param version: number of the version
    """
    (path / f"_delta_log/{version:020d}.json").flush()


def has_newer_version(table: DeltaTable, path: Location) -> bool:
    """Return whether a table has a newer version than the opened one; False if there is no table any more.

    :param table: the opened version
    :param path: directory of the table
    """
    fresh = load(path)
    return fresh is not None and fresh.version() > table.version()


def data_files(table: DeltaTable, path: Location) -> Iterator[tuple[Location, int | None]]:
    """Yield each data file of an opened version, with its size in bytes as the log records it.

    A file that the log names by the URL of an object store is left out: it belongs to another table, of which this one
    is a shallow clone.

    :param table: the opened version
    :param path: directory of the table
    """
    import pyarrow as pa

    for action in pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist():
        location = urlsplit(action["path"])
        if location.scheme in ("", "file"):
            yield path.resolve(unquote(location.path)), action["size_bytes"]


def counted_rows(table: DeltaTable, path: Location) -> int:
    """Return the number of rows in an opened version; for files without statistics, the number in their footer is read.

    :param table: the opened version
    :param path: directory of the table
    :raises SinkError: if a file without statistics is missing
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (known := row_count(table, path)) is not None:
        return known
    total = -_deleted_rows(table, path)
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        count = action.get("num_records")
        if count is None:
            content = path.resolve(unquote(urlsplit(action["path"]).path)).read()
            if content is None:
                raise SinkError(
                    f"the file {action['path']} of the Delta table {path} is missing, so its rows cannot be counted.",
                    hint="Restore the file or an older version of the table, then run again.",
                )
            count = pq.read_metadata(pa.BufferReader(content)).num_rows
        total += count
    return total


def row_count(table: DeltaTable, path: Location) -> int | None:
    """Return the number of rows in an opened version, as counted by its log; rows marked as deleted do not count.

    :param table: the opened version
    :param path: directory of the table
    :return: None if the log has no count for a file
    :raises SinkError: if the deletion vectors, which mark rows as deleted, cannot be read
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    actions = pa.table(table.get_add_actions(flatten=True))
    if actions.num_rows == 0:
        return 0
    if "num_records" not in actions.column_names or actions.column("num_records").null_count:
        return None
    return int(pc.sum(actions.column("num_records")).as_py()) - _deleted_rows(table, path)


def _deleted_rows(table: DeltaTable, path: Location) -> int:
    """Return the number of rows that the table's deletion vectors mark as deleted.

    :param table: the opened version
    :param path: directory of the table
    :raises SinkError: if the deletion vectors cannot be read
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake.exceptions import DeltaError

    if _DELETION_VECTORS not in (table.protocol().reader_features or ()):
        return 0
    try:
        marked = pa.table(table.deletion_vectors())
    except (DeltaError, OSError) as error:
        raise delta_error(error, f"read the deletion vectors of the Delta table {path}") from error
    kept = pc.list_flatten(marked.column("selection_vector"))
    return len(kept) - int(pc.sum(kept).as_py() or 0)
