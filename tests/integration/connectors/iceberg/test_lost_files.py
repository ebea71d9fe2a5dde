"""Data files of Iceberg tables that are no longer, or not only, the pipeline's target: no run may remove one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table

from airflow_provider_ckpt.core.errors import FencedError
from tests.integration.connectors.delta.delta_support import LEDGER, expected
from tests.integration.connectors.iceberg.iceberg_support import TABLE, Run, data_files, ids, known_files
from tests.services.iceberg import IcebergService

BACKUP = "air.backup"


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


def metadata_of(lake: IcebergService) -> str:
    """Where the table's metadata is."""
    table = lake.table(TABLE)
    assert table is not None
    return table.metadata_location


def rows_of(table: Table, snapshot: int | None = None) -> list[int]:
    """The ids of a table at a snapshot, read file by file."""
    found = []
    for task in table.scan(snapshot_id=snapshot).plan_files():
        path = task.file.file_path.removeprefix("file://")
        found += ParquetFile(path).read(use_threads=False).column("id").to_pylist()
    return sorted(found)


def drop(lake: IcebergService) -> None:
    with lake.catalog() as catalog:
        catalog.drop_table(TABLE)


def rename(lake: IcebergService) -> None:
    with lake.catalog() as catalog:
        catalog.rename_table(TABLE, BACKUP)


def wipe_properties(lake: IcebergService) -> None:
    table = lake.table(TABLE)
    assert table is not None
    with table.transaction() as transaction:
        transaction.remove_properties(*(name for name in table.properties if name.startswith("ckpt:")))


def set_receipts_back(lake: IcebergService) -> None:
    """As a restored catalog has them: the head of the first wave."""
    table = lake.table(TABLE)
    assert table is not None
    name = f"ckpt:{LEDGER}:flights:receipts"
    nodes = sorted((lake.folder / "warehouse/air/flights/_ckpt" / LEDGER / "flights/receipts").iterdir())
    with table.transaction() as transaction:
        transaction.set_properties({name: str(int(nodes[0].stem))})


def empty_bookkeeping(lake: IcebergService) -> None:
    """As a clean-up of hidden directories leaves it, with the table's properties gone too."""
    wipe_properties(lake)
    for path in (lake.folder / "warehouse/air/flights/_ckpt").rglob("*.json"):
        path.unlink()


@pytest.mark.parametrize("harm", [drop, rename, wipe_properties, set_receipts_back, empty_bookkeeping])
def test_a_table_that_another_name_or_older_metadata_knows_stays_readable(
    lake: IcebergService, harm: Callable[[IcebergService], None]
) -> None:
    """After each kind of harm some runs fence the table anew, as a schedule does; then old metadata is registered."""
    run = Run(lake, epoch=1).fence()
    for seq in range(3):
        run.send(seq)
    metadata = metadata_of(lake)
    harm(lake)

    for epoch in (2, 3, 4):
        Run(lake, epoch=epoch).fence()

    with lake.catalog() as catalog:
        old = catalog.register_table("air.again", metadata)
        assert rows_of(old) == expected(0, 1, 2)


def test_a_second_catalog_over_the_same_files_loses_none(lake: IcebergService) -> None:
    """A copy of the catalog, older by one wave, is run by the same pipeline; the first catalog stays readable."""
    run = Run(lake, epoch=1).fence()
    run.send(0)
    metadata = metadata_of(lake)
    run.send(1)
    second = IcebergService(lake.folder, dsn=f"sqlite:///{lake.folder}/second.db")
    with second.catalog() as catalog:
        catalog.create_namespace("air")
        catalog.register_table(TABLE, metadata)

    Run(second, epoch=2).fence().send(2)
    Run(second, epoch=3).fence()

    assert ids(lake) == expected(0, 1)
    assert ids(second) == expected(0, 2)


def test_snapshots_before_a_rollback_stay_readable(lake: IcebergService) -> None:
    run = Run(lake, epoch=1).fence()
    run.send(0)
    table = lake.table(TABLE)
    assert table is not None
    first = table.metadata.current_snapshot_id
    assert first is not None
    run.send(1)
    table.refresh()
    second = table.metadata.current_snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()

    accepting = Run(lake, epoch=2)
    assert accepting.sink.claims().set_back is not None
    accepting.fence().send(2)
    Run(lake, epoch=3).fence()

    table.refresh()
    assert rows_of(table, second) == expected(0, 1)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_commit_whose_answer_was_lost_keeps_its_files_when_the_table_is_made_anew(
    lake: IcebergService, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """The commit takes effect, its answer is lost, and the table is dropped before anybody looks.

    :param fenced: whether another run has taken the new table over by then, else one has delivered the batch there
    """
    run = Run(lake, epoch=1).fence()
    run.send(0)
    real = SqlCatalog.commit_table
    metadata = []

    def lost(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        metadata.append(metadata_of(lake))
        drop(lake)
        other = Run(lake, epoch=2 if fenced else 1).fence()
        if not fenced:
            other.send(1)
        raise CommitStateUnknownException("timed out")

    staged = run.stage(1)
    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    if fenced:
        with pytest.raises(FencedError):
            run.committer.commit(staged)
    else:
        assert run.committer.commit(staged)[0].found

    with lake.catalog() as catalog:
        assert rows_of(catalog.register_table("air.again", metadata[0])) == expected(0, 1)


def test_what_no_commit_ever_named_is_removed_by_the_run_that_wrote_it_alone(lake: IcebergService) -> None:
    first = Run(lake, epoch=1).fence()
    first.send(0)
    left = first.stage(1)
    staged = first.stage(2)
    Run(lake, epoch=2).fence()

    with pytest.raises(FencedError):
        first.committer.commit(staged)

    names = {Path(file["path"]).name for outcome in left if outcome.staged for file in outcome.staged["files"]}
    assert data_files(lake) == known_files(lake) | names
