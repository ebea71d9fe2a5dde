"""Which Iceberg tables the sink can write to, and what a table says of its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NEWEST_FORMAT = 2
_NO_ROWS = "0"


def refuse_unsupported(table: Table) -> None:
    """Fail clearly at tables that need more from a writer than adding plain files.

    :raises ConfigError: naming what stands in the way
    """
    from pyiceberg.transforms import UnknownTransform

    reasons = []
    if table.metadata.format_version > _NEWEST_FORMAT:
        reasons.append(f"its format version is {table.metadata.format_version}, above {_NEWEST_FORMAT}")
    columns = {field.field_id for field in table.schema().fields}
    for field in table.spec().fields:
        if field.source_id not in columns:
            reasons.append(f"it is partitioned by {field.name}, which is made from no column of its own")
        elif isinstance(field.transform, UnknownTransform):
            reasons.append(f"it is partitioned by {field.name} with the unknown transform {field.transform}")
    if reasons:
        raise ConfigError(
            f"the iceberg sink cannot write to {'.'.join(table.name())}: {'; '.join(reasons)}.",
            hint="Write to a plain table and derive this one from it.",
        )


def rows(table: Table) -> int | None:
    """Rows by the newest snapshot's summary, or None where that does not tell: without totals, or with deleted rows."""
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
