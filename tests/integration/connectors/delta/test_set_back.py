"""A Delta table that lost what was delivered, though its log still names the receipts; and one that merely changed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.delta.fence import fence
from airflow_provider_ckpt.connectors.local.filesystem import write_durably
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorAction, SinkChangedError, SinkError, default_action
from tests.integration.connectors.delta.delta_support import LEDGER, Run, before, expected, ids, once

KEYS = [BatchKey(1, "files", seq) for seq in range(3)]
RECEIPTS = f"_ckpt/{LEDGER}/flights/receipts"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three batches that three waves of epoch 1 delivered, each in a version of its own: 1, 2 and 3."""
    path = tmp_path / "flights"
    run = Run(path).fence()
    for seq in range(3):
        run.send(seq)
    assert DeltaTable(path).version() == 3
    return path


def restore(table: Path, to: int | datetime) -> None:
    DeltaTable(table).restore(to)


def restore_as_noted(table: Path, **parameters: Any) -> None:
    """Restore to version 0, with the parameters in the log as another writer would note them."""
    restore(table, 0)
    entry = table / "_delta_log" / f"{DeltaTable(table).version():020d}.json"
    actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = parameters
    entry.write_text("\n".join(map(json.dumps, actions)) + "\n")


def rows(**columns: list[int]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


class TestRestore:
    @pytest.mark.parametrize(("version", "lost"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2])])
    def test_to_an_older_version_is_told_and_the_lost_batches_are_named(
        self, table: Path, version: int, lost: list[int]
    ) -> None:
        restore(table, version)
        sink = Run(table, epoch=2).sink

        claims = sink.claims()

        assert claims.set_back is not None
        assert f"has the content of its version {version} again" in claims.set_back
        assert "delivered rows up to version 3" in claims.set_back
        assert [key.seq for key in sink.missing(KEYS)] == lost

    @pytest.mark.parametrize("version", [0, "0"])
    def test_to_version_0_is_not_overlooked_be_it_noted_as_number_or_text(
        self, table: Path, version: int | str
    ) -> None:
        restore_as_noted(table, version=version, timestamp=None)
        sink = Run(table, epoch=2).sink

        assert "has the content of its version 0 again" in (sink.claims().set_back or "")
        assert sink.missing(KEYS) == KEYS

    @pytest.mark.parametrize(
        "parameters",
        [{}, {"tag": "noon"}, {"version": None}, {"version": "noon"}, {"version": True}, {"timestamp": ""}],
    )
    def test_to_nobody_knows_what_is_refused_until_it_is_restored_by_number(
        self, table: Path, parameters: dict[str, Any]
    ) -> None:
        restore_as_noted(table, **parameters)

        with pytest.raises(SinkError, match=r"version 4 of .* is a RESTORE.*TO VERSION AS OF"):
            Run(table, epoch=2).sink.claims()

        restore(table, 3)
        assert Run(table, epoch=2).sink.claims().set_back is None

    def test_to_a_moment_is_told_too(self, table: Path) -> None:
        moment = datetime.now(UTC)
        time.sleep(0.01)  # the log counts in milliseconds
        Run(table).send(3)
        restore(table, moment)
        sink = Run(table, epoch=2).sink

        assert sink.claims().set_back is not None
        assert sink.missing([*KEYS, BatchKey(1, "files", 3)]) == [BatchKey(1, "files", 3)]

    def test_that_others_wrote_after_is_told_and_so_is_one_after_a_compaction(self, table: Path) -> None:
        DeltaTable(table).optimize.compact()
        restore(table, 2)
        write_deltalake(table, rows(id=[99]), mode="append")
        DeltaTable(table).optimize.compact()
        sink = Run(table, epoch=2).sink

        assert sink.claims().set_back is not None
        assert [key.seq for key in sink.missing(KEYS)] == [2]

    def test_that_was_taken_back_lost_nothing(self, table: Path) -> None:
        restore(table, 1)
        restore(table, 3)
        sink = Run(table, epoch=2).sink

        assert (sink.claims().set_back, sink.missing(KEYS)) == (None, [])
        assert ids(table) == expected(0, 1, 2)

    def test_that_undoes_what_others_did_after_our_rows_lost_nothing(self, table: Path) -> None:
        DeltaTable(table).delete("id < 25")
        restore(table, 3)
        sink = Run(table, epoch=2).sink

        assert (sink.claims().set_back, sink.missing(KEYS)) == (None, [])

    def test_between_two_waves_stops_the_run_before_its_next_commit(self, table: Path) -> None:
        run = Run(table, epoch=2).fence()
        run.send(3)
        restore(table, 2)
        before_it = DeltaTable(table).version()

        (outcome,) = run.send(4)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert "has the content of its version 2 again" in outcome.error.message
        assert default_action(outcome.error) is ErrorAction.HALT
        assert DeltaTable(table).version() == before_it

    def test_that_comes_between_look_and_fence_is_not_accepted_unseen(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table, epoch=2)
        assert run.sink.claims().set_back is None
        monkeypatch.setattr(f"{fence.__module__}.write_durably", before(write_durably, once(lambda: restore(table, 1))))

        with pytest.raises(SinkChangedError, match="version 1 again"):
            run.fence()

        assert Run(table, epoch=3).sink.claims().set_back is not None

    def test_that_was_accepted_is_not_told_again_and_the_next_one_is(self, table: Path) -> None:
        restore(table, 1)
        run = Run(table, epoch=2)
        run.sink.claims()
        run.fence()

        assert Run(table, epoch=3).sink.claims().set_back is None
        run.send(3)
        assert ids(table) == expected(0, 3)
        assert Run(table, epoch=3).fence().sink.claims().set_back is None
        restore(table, 1)
        sink = Run(table, epoch=4).sink
        assert sink.claims().set_back is not None
        assert BatchKey(1, "files", 3) in sink.missing([*KEYS, BatchKey(1, "files", 3)])

    @pytest.mark.parametrize("damage", [b"", b"[]", b'{"version": "9"}', None])
    def test_is_told_again_where_nothing_says_that_it_was_accepted(self, table: Path, damage: bytes | None) -> None:
        restore(table, 1)
        run = Run(table, epoch=2)
        run.sink.claims()
        run.fence()
        accepted = table / "_ckpt" / LEDGER / "flights/accepted"
        accepted.unlink() if damage is None else accepted.write_bytes(damage)

        assert Run(table, epoch=3).sink.claims().set_back is not None


def optimize(table: Path) -> None:
    DeltaTable(table).optimize.compact()


def z_order(table: Path) -> None:
    DeltaTable(table).optimize.z_order(["id"])


def delete(table: Path) -> None:
    DeltaTable(table).delete("id > 3")


def delete_all(table: Path) -> None:
    DeltaTable(table).delete()


def update(table: Path) -> None:
    DeltaTable(table).update(predicate="id = 4", updates={"id": "400"})


def merge(table: Path) -> None:
    merger = DeltaTable(table).merge(rows(id=[5, 77]), "s.id = t.id", "s", "t")
    merger.when_matched_delete().when_not_matched_insert_all().execute()


def append(table: Path) -> None:
    write_deltalake(table, rows(id=[99]), mode="append")


def overwrite(table: Path) -> None:
    write_deltalake(table, rows(id=[99]), mode="overwrite")


def add_column(table: Path) -> None:
    DeltaTable(table).alter.add_columns([Field("note", PrimitiveType("string"))])


def overwrite_schema(table: Path) -> None:
    write_deltalake(table, rows(id=[1], other=[2]), mode="overwrite", schema_mode="overwrite")


def set_property(table: Path) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})


def vacuum(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def clean_up_log(table: Path) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    handle = DeltaTable(table)
    handle.create_checkpoint()
    handle.cleanup_metadata()


OTHERS = [
    *(optimize, z_order, delete, delete_all, update, merge, append, overwrite, add_column, overwrite_schema),
    *(set_property, vacuum, clean_up_log),
]


@pytest.mark.parametrize("change", OTHERS)
def test_what_others_do_to_a_table_is_no_loss_of_ours(table: Path, change: Callable[[Path], None]) -> None:
    target = Run(table).sink.claims().target
    change(table)
    sink = Run(table, epoch=2).sink

    claims = sink.claims()

    assert (claims.set_back, claims.target, claims.epoch) == (None, target, 1)
    assert sink.missing(KEYS) == []
    assert Run(table, epoch=2).fence().receipted == [0, 1, 2]


class TestTarget:
    def test_a_table_that_was_dropped_and_created_again_is_another_one(self, table: Path) -> None:
        target = Run(table).sink.claims().target
        schema = DeltaTable(table).schema()
        shutil.rmtree(table)
        DeltaTable.create(table, schema)
        sink = Run(table, epoch=2).sink

        assert target is not None
        assert sink.claims().target not in (None, target)
        assert sink.missing(KEYS) == KEYS

    def test_one_that_was_created_again_beside_the_old_bookkeeping_is_another_one_too(self, table: Path) -> None:
        target = Run(table).sink.claims().target
        schema = DeltaTable(table).schema()
        shutil.rmtree(table / "_delta_log")
        assert Run(table).sink.claims().target is None
        DeltaTable.create(table, schema)
        sink = Run(table, epoch=2).sink

        assert sink.claims().target != target
        assert sink.missing(KEYS) == KEYS

    def test_a_log_that_lost_its_tail_lacks_receipts(self, table: Path) -> None:
        (table / "_delta_log" / f"{3:020d}.json").unlink()
        sink = Run(table, epoch=2).sink

        assert [key.seq for key in sink.missing(KEYS)] == [2]

    def test_a_table_has_its_place_in_its_location(self, table: Path) -> None:
        assert Run(table).sink.location == f"delta://{table}"


class TestLostReceipts:
    """The newest link of the chain, or all bookkeeping, is gone; rows are all there."""

    @pytest.fixture(params=["newest", "cut off", "replaced", "all"])
    def bare(self, table: Path, request: pytest.FixtureRequest) -> Path:
        newest = max((table / RECEIPTS).iterdir())
        if request.param == "newest":
            newest.unlink()
        elif request.param == "cut off":
            newest.write_bytes(b"")
        elif request.param == "replaced":
            newest.write_bytes(b"[]")
        else:
            shutil.rmtree(table / "_ckpt")
        return table

    def test_nothing_is_sent_until_a_person_accepts(self, bare: Path) -> None:
        run = Run(bare, epoch=2)

        with pytest.raises(SinkChangedError, match=r"receipts .* are missing or damaged"):
            run.fence()

        assert DeltaTable(bare).version() == 3
        told = run.sink.claims().set_back
        assert told is not None
        assert "missing or damaged" in told
        assert run.sink.missing(KEYS) == KEYS

    def test_an_accepted_table_goes_on_with_a_chain_of_its_own(self, bare: Path) -> None:
        run = Run(bare, epoch=2)
        run.sink.claims()
        run.fence()

        run.send(3)

        assert ids(bare) == expected(0, 1, 2, 3)
        again = Run(bare, epoch=3)
        assert again.sink.claims().set_back is None
        assert again.sink.missing([BatchKey(1, "files", 3)]) == []
        assert again.fence().receipted == [3]
