"""Files of Iceberg tables: no file that another table or catalog needs is removed, and each missing file is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.connectors.batches import LEDGER, expected
from tests.integration.connectors.iceberg.iceberg_harness import TABLE, IcebergHarness, ids_of
from tests.integration.connectors.two_phase.harness import Run
from tests.services.iceberg import IcebergService

BACKUP = "air.backup"


def drop(table: IcebergHarness) -> None:
    table.drop()


def rename(table: IcebergHarness) -> None:
    with table.lake.catalog() as catalog:
        catalog.rename_table(TABLE, BACKUP)


def wipe_properties(table: IcebergHarness) -> None:
    opened = table.opened
    with opened.transaction() as transaction:
        transaction.remove_properties(*(name for name in opened.properties if name.startswith("ckpt:")))


def set_receipts_back(table: IcebergHarness) -> None:
    """As a restored catalog has them: the head of the first wave."""
    name = f"ckpt:{LEDGER}:flights:receipts"
    with table.opened.transaction() as transaction:
        transaction.set_properties({name: str(int(table.nodes[0].stem))})


def empty_bookkeeping(table: IcebergHarness) -> None:
    """As a clean-up of hidden directories leaves it, with the table's properties gone too."""
    wipe_properties(table)
    for path in (table.place / "_ckpt").rglob("*.json"):
        path.unlink()


@pytest.mark.parametrize("harm", [drop, rename, wipe_properties, set_receipts_back, empty_bookkeeping])
def test_a_table_that_another_name_or_older_metadata_knows_stays_readable(
    table: IcebergHarness, harm: Callable[[IcebergHarness], None]
) -> None:
    """After each kind of harm some runs fence the table anew, as a schedule does; then old metadata is registered."""
    run = Run(table, epoch=1).fence()
    for seq in range(3):
        run.send(seq)
    metadata = table.opened.metadata_location
    harm(table)

    for epoch in (2, 3, 4):
        Run(table, epoch=epoch).fence()

    with table.lake.catalog() as catalog:
        assert ids_of(catalog.register_table("air.again", metadata)) == expected(0, 1, 2)


def test_a_second_catalog_over_the_same_files_loses_none(table: IcebergHarness) -> None:
    """A copy of the catalog, older by one wave, is run by the same pipeline; the first catalog stays readable."""
    run = Run(table, epoch=1).fence()
    run.send(0)
    metadata = table.opened.metadata_location
    run.send(1)
    folder = table.lake.folder
    second = IcebergHarness(folder, IcebergService(folder, dsn=f"sqlite:///{folder}/second.db"))
    with second.lake.catalog() as catalog:
        catalog.create_namespace("air")
        catalog.register_table(TABLE, metadata)

    Run(second, epoch=2).fence().send(2)
    Run(second, epoch=3).fence()

    assert table.ids() == expected(0, 1)
    assert second.ids() == expected(0, 2)


def test_a_data_file_a_manifest_or_a_list_of_them_that_is_gone_is_named(table: IcebergHarness) -> None:
    run = Run(table).fence()
    run.send(0, 1)
    opened = table.opened
    snapshot = opened.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(opened.io)
    for lost in (table.lake.files(TABLE)[0], *map(local, (manifest.manifest_path, snapshot.manifest_list))):
        lost.unlink()

        assert list(run.sink.damaged_files()) == [f"the file {lost} is missing"]


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))
