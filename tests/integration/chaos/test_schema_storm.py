"""A short storm of schema changes, also with defects in the rules; see ``tests/chaos/schema_storm``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.schema_storm.storm import storm
from tests.chaos.schema_storm.worker import Death, Defect
from tests.services.mariadb import MariaDbServer
from tests.services.postgres import PostgresServer


def test_the_target_equals_the_model_of_row_and_version_whatever_is_killed(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    summary = storm(postgres_server, tmp_path, rounds=14, seed=1)

    assert summary["faults"] == []
    assert summary["errors"] == []
    assert summary["kills"] > 2
    assert summary["versions"] > 2


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_table_of_a_lake_equals_the_model_too(postgres_server: PostgresServer, tmp_path: Path, sink: str) -> None:
    summary = storm(postgres_server, tmp_path, rounds=10, seed=1, sink=sink)

    assert summary["faults"] == []
    assert summary["errors"] == []
    assert summary["kills"] > 2
    assert summary["versions"] > 2


@pytest.mark.parametrize("sink", ["mysql", "sqlite"])
def test_a_table_of_an_sql_database_equals_the_model_too(
    postgres_server: PostgresServer, mariadb_server: MariaDbServer, tmp_path: Path, sink: str
) -> None:
    mariadb = mariadb_server if sink == "mysql" else None

    summary = storm(postgres_server, tmp_path, rounds=14, seed=1, sink=sink, mariadb=mariadb)

    assert summary["faults"] == []
    assert summary["errors"] == []
    assert summary["kills"] > 2
    assert summary["versions"] > 2


@pytest.mark.parametrize(
    ("defect", "invariant"),
    [
        (Defect.BARRIER, "SchemaBarrierSeparates"),
        (Defect.CATALOG, "RowsMatchTheirVersion"),
        (Defect.RECEIPT, "SchemaReceiptOnce"),
    ],
)
def test_the_model_finds_a_broken_rule(
    postgres_server: PostgresServer, tmp_path: Path, defect: Defect, invariant: str
) -> None:
    """Each worker dies before its first wave, so that batches of one version are planned when the next one comes."""
    found: set[str] = set()
    for seed in range(1, 6):  # which moments a storm meets depends on how the machine schedules it
        folder = tmp_path / str(seed)
        folder.mkdir()
        found |= {
            fault.partition(":")[0]
            for fault in storm(postgres_server, folder, rounds=5, seed=seed, defect=defect, deaths=[Death.BEFORE_WAVE])[
                "faults"
            ]
        }
        if invariant in found:
            break
    assert invariant in found
