"""The Delta table itself: opening, creating and committing on one handle, and what its log says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider_ckpt.connectors.local.filesystem import io_error, sync_directory, sync_file
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, IoError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Field
    from deltalake.transaction import AddAction

_COLOURS = re.compile(r"\x1b\[[0-9;]*m|↳")
_CONSTRAINED = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def load(path: Path) -> DeltaTable | None:
    """A fresh handle, or None if there is no Delta table yet.

    :raises SinkError: if the log cannot be read
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise delta_error(error, f"open the Delta table {path}") from error


def refresh(table: DeltaTable, path: Path) -> DeltaTable | None:
    """The handle at the newest version, or a fresh one where it cannot be brought there."""
    from deltalake.exceptions import DeltaError

    try:
        table.update_incremental()
    except (DeltaError, OSError):
        return load(path)
    return table


def create(path: Path, schema: pa.Schema, transactions: Mapping[str, int]) -> None:
    """Create an empty table unless there is one."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable.create(path, schema, mode="error", commit_properties=_properties(transactions, {}))
    except (DeltaError, OSError) as error:
        if load(path) is None:
            raise delta_error(error, f"create the Delta table {path}") from error
    _sync_log(path, 0)


def commit(
    table: DeltaTable,
    path: Path,
    actions: Sequence[AddAction],
    transactions: Mapping[str, int],
    note: Mapping[str, Any],
) -> None:
    """Commit as the very next version of this handle, or not at all.

    Whoever needs certainty reads a fresh handle afterwards: an error may come after the commit (a failed checkpoint).

    :param transactions: versions by application id
    :param note: commit metadata, for people
    :raises deltalake.exceptions.CommitFailedError: if somebody else took that version
    """
    table.create_write_transaction(
        list(actions), "append", table.schema(), commit_properties=_properties(transactions, note)
    )
    _sync_log(path, table.version() + 1)


def add_columns(table: DeltaTable, path: Path, fields: Sequence[Field]) -> bool:
    """Add columns as the very next version of this handle; False if somebody else took that version."""
    from deltalake.exceptions import DeltaError

    try:
        table.alter.add_columns(list(fields), commit_properties=_properties({}, {}))
    except (DeltaError, OSError) as error:
        if not moved(table, path):
            raise delta_error(error, f"add columns to the Delta table {path}") from error
        return False
    _sync_log(path, table.version())
    return True


def required(table: DeltaTable) -> list[str]:
    """Columns that may not be null."""
    return [field.name for field in table.schema().fields if not field.nullable]


def refuse_unsupported(table: DeltaTable, path: Path) -> None:
    """Fail clearly at tables that need more from a writer than adding plain files.

    :raises ConfigError: naming what stands in the way
    """
    metadata = table.metadata()
    reasons = [f"it is partitioned by {name}" for name in metadata.partition_columns]
    for key, value in metadata.configuration.items():
        if key.startswith("delta.constraints."):
            reasons.append(f"it has the check constraint {key.removeprefix('delta.constraints.')}")
        if (key == "delta.columnMapping.mode" and value != "none") or key == "delta.setTransactionRetentionDuration":
            reasons.append(f"its property {key} is {value}")
    for field in table.schema().fields:
        reasons += [f"column {field.name} has {key}" for key in _CONSTRAINED if key in (field.metadata or {})]
    if reasons:
        raise ConfigError(
            f"the delta sink cannot write to {path}: {'; '.join(reasons)}.",
            hint="Write to a plain table and derive this one from it.",
        )


def delta_error(error: Exception, doing: str) -> CkptError:
    """An error of the Delta library as ours: of the table as a whole, for no row is looked at there."""
    if isinstance(error, OSError):
        if error.errno is not None:
            return io_error(error, doing)
        return IoError(f"cannot {doing}: {_plain(error)}.", whole=True)
    return SinkError(f"cannot {doing}: {_plain(error)}.", recoverable=True, whole=True)


def _plain(error: Exception) -> str:
    return " ".join(_COLOURS.sub("", str(error)).split()).rstrip(".")


def _properties(transactions: Mapping[str, int], note: Mapping[str, Any]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=dict(note),
        max_commit_retries=0,
        app_transactions=[Transaction(app, version) for app, version in transactions.items()],
    )


def _sync_log(path: Path, version: int) -> None:
    log = path / "_delta_log"
    with suppress(FileNotFoundError):  # cleaned up already: a checkpoint has taken it in
        sync_file(log / f"{version:020d}.json")
    sync_directory(log)


def moved(table: DeltaTable, path: Path) -> bool:
    """Whether the table has a newer version than this handle."""
    fresh = load(path)
    return fresh is not None and fresh.version() > table.version()


def files(table: DeltaTable) -> Iterator[tuple[Path, int | None]]:
    """Path and size of each local data file that this version names; those of a shallow clone lie elsewhere."""
    import pyarrow as pa

    root = table.table_uri.removeprefix("file://")
    for action in pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist():
        place = urlsplit(action["path"])
        if place.scheme in ("", "file"):
            yield Path(unquote(root), unquote(place.path)), action["size_bytes"]


def rows(table: DeltaTable) -> int | None:
    """Rows by the log's statistics, or None where they do not tell: a file without any, or with deleted rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    actions = pa.table(table.get_add_actions(flatten=True))
    if actions.num_rows == 0:
        return 0
    if "num_records" not in actions.column_names or any(name.startswith("deletion") for name in actions.column_names):
        return None
    numbers = actions.column("num_records")
    return None if numbers.null_count else int(pc.sum(numbers).as_py())
