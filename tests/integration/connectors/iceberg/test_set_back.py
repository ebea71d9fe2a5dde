"""An Iceberg table that lost what was delivered, though its properties still name the receipts; or merely changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StringType

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorAction, SinkChangedError, default_action
from tests.integration.connectors.delta.delta_support import LEDGER, before, expected, once
from tests.integration.connectors.iceberg.iceberg_support import TABLE, Run, ids, place
from tests.services.iceberg import IcebergService

KEYS = [BatchKey(1, "files", seq) for seq in range(3)]


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    """Three batches that three waves of epoch 1 delivered: snapshots 2, 3 and 4, after the fence's."""
    service = IcebergService(tmp_path)
    run = Run(service).fence()
    for seq in range(3):
        run.send(seq)
    return service


def opened(lake: IcebergService) -> Table:
    table = lake.table(TABLE)
    assert table is not None
    return table


def roll_back(lake: IcebergService, number: int) -> None:
    """Make the snapshot of a sequence number the newest."""
    table = opened(lake)
    (found,) = (s.snapshot_id for s in table.snapshots() if s.sequence_number == number)
    table.manage_snapshots().rollback_to_snapshot(found).commit()


class TestRollback:
    @pytest.mark.parametrize(("number", "lost"), [(1, [0, 1, 2]), (2, [1, 2]), (3, [2])])
    def test_it_is_told_and_the_lost_batches_are_named(
        self, lake: IcebergService, number: int, lost: list[int]
    ) -> None:
        roll_back(lake, number)
        sink = Run(lake, epoch=2).sink

        claims = sink.claims()

        assert claims.set_back is not None
        assert f"has the content of its version {number} again" in claims.set_back
        assert [key.seq for key in sink.missing(KEYS)] == lost

    def test_that_others_wrote_after_is_told(self, lake: IcebergService) -> None:
        roll_back(lake, 3)
        table = opened(lake)
        table.append(pa.table({"id": pa.array([99], pa.int64())}))
        table.append(pa.table({"id": pa.array([98], pa.int64())}))
        sink = Run(lake, epoch=2).sink

        assert sink.claims().set_back is not None
        assert [key.seq for key in sink.missing(KEYS)] == [2]

    def test_whose_snapshots_expired_is_told(self, lake: IcebergService) -> None:
        newest = opened(lake).metadata.current_snapshot_id
        assert newest is not None
        roll_back(lake, 3)
        opened(lake).maintenance.expire_snapshots().by_ids([newest]).commit()
        sink = Run(lake, epoch=2).sink

        assert sink.claims().set_back is not None
        assert [key.seq for key in sink.missing(KEYS)] == [2]

    def test_a_branch_that_was_replaced_is_told(self, lake: IcebergService) -> None:
        table = opened(lake)
        (first,) = (s.snapshot_id for s in table.snapshots() if s.sequence_number == 2)
        with table.manage_snapshots() as manage:
            manage.create_branch(first, "main")
        sink = Run(lake, epoch=2).sink

        assert sink.claims().set_back is not None
        assert [key.seq for key in sink.missing(KEYS)] == [1, 2]

    def test_that_was_taken_back_lost_nothing(self, lake: IcebergService) -> None:
        newest = opened(lake).metadata.current_snapshot_id
        assert newest is not None
        roll_back(lake, 2)
        with opened(lake).manage_snapshots() as manage:
            manage.create_branch(newest, "main")
        sink = Run(lake, epoch=2).sink

        assert (sink.claims().set_back, sink.missing(KEYS)) == (None, [])

    def test_between_two_waves_stops_the_run_before_its_next_commit(self, lake: IcebergService) -> None:
        run = Run(lake, epoch=2).fence()
        run.send(3)
        roll_back(lake, 3)
        before_it = opened(lake).metadata_location

        (outcome,) = run.send(4)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert "has the content of its version 3 again" in outcome.error.message
        assert default_action(outcome.error) is ErrorAction.HALT
        assert opened(lake).metadata_location == before_it

    def test_that_comes_between_look_and_fence_is_not_accepted_unseen(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake, epoch=2)
        assert run.sink.claims().set_back is None
        real = SqlCatalog.load_table
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "load_table", before(real, once(lambda: roll_back(lake, 2))))
            with pytest.raises(SinkChangedError, match="version 2 again"):
                run.fence()

        assert Run(lake, epoch=3).sink.claims().set_back is not None

    def test_that_was_accepted_is_not_told_again_and_the_next_one_is(self, lake: IcebergService) -> None:
        roll_back(lake, 2)
        run = Run(lake, epoch=2)
        run.sink.claims()
        run.fence()

        assert Run(lake, epoch=3).sink.claims().set_back is None
        run.send(3)
        assert ids(lake) == expected(0, 3)
        assert Run(lake, epoch=3).fence().sink.claims().set_back is None
        roll_back(lake, 2)
        sink = Run(lake, epoch=4).sink
        assert sink.claims().set_back is not None
        assert BatchKey(1, "files", 3) in sink.missing([*KEYS, BatchKey(1, "files", 3)])


def append(lake: IcebergService) -> None:
    opened(lake).append(pa.table({"id": pa.array([99], pa.int64())}))


def delete(lake: IcebergService) -> None:
    opened(lake).delete("id > 3")


def delete_all(lake: IcebergService) -> None:
    opened(lake).delete()


def rewrite(lake: IcebergService) -> None:
    """All rows in one file, as a compaction leaves them."""
    opened(lake).overwrite(opened(lake).scan().to_arrow())


def upsert(lake: IcebergService) -> None:
    opened(lake).upsert(pa.table({"id": pa.array([5, 77], pa.int64())}), join_cols=["id"])


def add_column(lake: IcebergService) -> None:
    with opened(lake).update_schema() as update:
        update.add_column("note", StringType())


def tag(lake: IcebergService) -> None:
    table = opened(lake)
    newest = table.metadata.current_snapshot_id
    assert newest is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(newest, "today").create_branch(newest, "audit")


def expire(lake: IcebergService) -> None:
    table = opened(lake)
    old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def rewrite_and_expire(lake: IcebergService) -> None:
    append(lake)
    rewrite(lake)
    expire(lake)


OTHERS = [append, delete, delete_all, rewrite, upsert, add_column, tag, expire, rewrite_and_expire]


@pytest.mark.parametrize("change", OTHERS)
def test_what_others_do_to_a_table_is_no_loss_of_ours(
    lake: IcebergService, change: Callable[[IcebergService], None]
) -> None:
    target = Run(lake).sink.claims().target
    change(lake)
    sink = Run(lake, epoch=2).sink

    claims = sink.claims()

    assert (claims.set_back, claims.target, claims.epoch) == (None, target, 1)
    assert sink.missing(KEYS) == []
    assert Run(lake, epoch=2).fence().receipted == [0, 1, 2]


class TestTarget:
    def test_a_table_that_was_dropped_and_created_again_is_another_one(self, lake: IcebergService) -> None:
        target = Run(lake).sink.claims().target
        with lake.catalog() as catalog:
            catalog.drop_table(TABLE)
            assert Run(lake).sink.claims().target is None
            catalog.create_table(TABLE, Schema())
        sink = Run(lake, epoch=2).sink

        assert target is not None
        assert sink.claims().target not in (None, target)
        assert sink.missing(KEYS) == KEYS

    def test_a_catalog_that_names_older_metadata_has_an_older_fence_or_lacks_receipts(
        self, lake: IcebergService
    ) -> None:
        metadata = opened(lake).metadata_location
        Run(lake, epoch=2).fence().send(3)
        with lake.catalog() as catalog:
            catalog.drop_table(TABLE)
            catalog.register_table(TABLE, metadata)
        sink = Run(lake, epoch=3).sink

        assert sink.claims().epoch == 1
        assert sink.missing([*KEYS, BatchKey(1, "files", 3)]) == [BatchKey(1, "files", 3)]

    def test_a_table_has_its_place_in_its_location(self, lake: IcebergService) -> None:
        assert Run(lake).sink.location == f"iceberg://lake/{TABLE}"


def lose_newest(lake: IcebergService) -> None:
    max((place(lake) / "_ckpt" / LEDGER / "flights/receipts").iterdir()).unlink()


def lose_all(lake: IcebergService) -> None:
    shutil.rmtree(place(lake) / "_ckpt")


def move_elsewhere(lake: IcebergService) -> None:
    """An altered location, which leaves the bookkeeping behind."""
    from pyiceberg.table.update import SetLocationUpdate

    table = opened(lake)
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=f"file://{lake.folder}/elsewhere"),))


class TestLostReceipts:
    """The newest link of the chain, or all bookkeeping, is not where the table is; rows are all there."""

    @pytest.fixture(params=[lose_newest, lose_all, move_elsewhere])
    def bare(self, lake: IcebergService, request: pytest.FixtureRequest) -> IcebergService:
        request.param(lake)
        return lake

    def test_nothing_is_sent_until_a_person_accepts(self, bare: IcebergService) -> None:
        run, before_it = Run(bare, epoch=2), opened(bare).metadata_location

        with pytest.raises(SinkChangedError, match=r"receipts .* are missing or damaged"):
            run.fence()

        assert opened(bare).metadata_location == before_it
        told = run.sink.claims().set_back
        assert told is not None
        assert "missing or damaged" in told
        assert run.sink.missing(KEYS) == KEYS

    def test_an_accepted_table_goes_on_with_a_chain_of_its_own(self, bare: IcebergService) -> None:
        run = Run(bare, epoch=2)
        run.sink.claims()
        run.fence()

        run.send(3)

        assert ids(bare) == expected(0, 1, 2, 3)
        again = Run(bare, epoch=3)
        assert again.sink.claims().set_back is None
        assert again.sink.missing([BatchKey(1, "files", 3)]) == []
        assert again.fence().receipted == [3]
