"""Check whether the sink can write to an Iceberg table, and read the table's row count and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NEWEST_FORMAT = 2
_NO_ROWS = "0"


def refuse_unsupported(table: Table) -> None:
    """Raise an error for a table that requires more of a writer than adding plain files.

    :raises ConfigError: naming the unsupported features
    """
    from pyiceberg.transforms import UnknownTransform

    reasons = []
    if table.metadata.format_version > _NEWEST_FORMAT:
        reasons.append(f"its format version is {table.metadata.format_version}, above {_NEWEST_FORMAT}")
    columns = {field.field_id for field in table.schema().fields}
    for field in table.spec().fields:
        if field.source_id not in columns:
            reasons.append(f"it is partitioned by {field.name}, which is not derived from a top-level column")
        elif isinstance(field.transform, UnknownTransform):
            reasons.append(f"it is partitioned by {field.name} with the unknown transform {field.transform}")
    if reasons:
        raise ConfigError(
            f"the iceberg sink cannot write to {'.'.join(table.name())}: {'; '.join(reasons)}.",
            hint="Write to a plain table and derive this one from it.",
        )


def data_files(table: Table) -> Iterator[tuple[Path, int | None]]:
    """Yield path and size of each local file of the newest snapshot; the files of a missing manifest are unknown."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    if (listed := _local_path(snapshot.manifest_list)) is not None:
        yield listed, None
        if not listed.is_file():
            return
    for manifest in snapshot.manifests(table.io):
        if (path := _local_path(manifest.manifest_path)) is not None:
            yield path, manifest.manifest_length
            if not path.is_file():
                continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if (path := _local_path(entry.data_file.file_path)) is not None:
                yield path, entry.data_file.file_size_in_bytes


def _local_path(location: str) -> Path | None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None


def row_count(table: Table) -> int | None:
    """Return the row count from the newest snapshot's summary; None if it has no total, or there are deleted rows."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    summary = snapshot.summary
    if summary is None or any(
        summary.get(f"total-{kind}-deletes", _NO_ROWS) != _NO_ROWS for kind in ("position", "equality")
    ):
        return None
    total = summary.get("total-records")
    return int(total) if total is not None else None
