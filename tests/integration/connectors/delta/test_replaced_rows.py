"""Delta tables that a refresh would replace: their exact number of rows, and whether the rows may be removed."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_ckpt.connectors.delta.table import counted_rows, refuse_unsupported, row_count
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.errors import ConfigError, SinkError

ROWS = 30
_BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(*rows: int) -> dict[str, Any]:
    """A vector that is stored in the log itself."""
    header = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 16)
    body = header + b"".join(struct.pack("<H", row) for row in rows)
    text = base64.b85encode(body).decode().translate(str.maketrans(_BASE85, _Z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": len(rows)}


def altered(path: Path, change: Mapping[str, Any]) -> DeltaTable:
    """A table of 30 rows in one file, which the log describes otherwise."""
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    write_deltalake(path, rows, configuration={"delta.enableDeletionVectors": "true"})
    log = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(
        "\n".join(
            json.dumps({name: {**of, **change} if name == "add" else of})
            for action in actions
            for name, of in action.items()
        )
    )
    return DeltaTable(path)


@pytest.mark.parametrize(
    ("change", "from_log", "counted"),
    [
        ({}, ROWS, ROWS),
        ({"stats": None}, None, ROWS),
        ({"deletionVector": deletion_vector(3, 7)}, ROWS - 2, ROWS - 2),
    ],
)
def test_rows_are_counted_without_statistics_and_without_deleted_ones(
    tmp_path: Path, change: dict[str, Any], from_log: int | None, counted: int
) -> None:
    table, place = altered(tmp_path / "t", change), LocalLocation(tmp_path / "t")

    assert row_count(table, place) == from_log
    assert counted_rows(table, place) == counted


def test_a_missing_file_without_statistics_cannot_be_counted(tmp_path: Path) -> None:
    table = altered(tmp_path / "t", {"stats": None})
    next((tmp_path / "t").glob("*.parquet")).unlink()

    with pytest.raises(SinkError, match="is missing, so its rows cannot be counted"):
        counted_rows(table, LocalLocation(tmp_path / "t"))


def test_a_table_whose_rows_may_not_be_removed_is_refused_by_refreshes_alone(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    write_deltalake(tmp_path / "t", rows, configuration={"delta.appendOnly": "true"})
    table, place = DeltaTable(tmp_path / "t"), LocalLocation(tmp_path / "t")

    refuse_unsupported(table, place)
    with pytest.raises(ConfigError, match=r"delta.appendOnly is true, so sink.mode: replace"):
        refuse_unsupported(table, place, replacing=True)
