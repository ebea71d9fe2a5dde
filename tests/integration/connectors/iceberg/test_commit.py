"""Commits of the iceberg sink: what catalogs accept, and changes of a table between two requests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from airflow_provider_ckpt.core.batch import AttemptOutcome
from tests.integration.connectors.batches import LEDGER, content, task
from tests.integration.connectors.iceberg.iceberg_harness import TABLE, IcebergHarness
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run

EPOCH = f"ckpt:{LEDGER}:flights:epoch"


class TestCatalogs:
    """The behaviour of PyIceberg and its catalogs for which the sink does not leave its commits to them."""

    def test_a_property_alone_would_let_a_stale_commit_through(self, table: IcebergHarness) -> None:
        Run(table, epoch=1).fence()
        stale, new = table.opened, table.opened
        new.transaction().set_properties({EPOCH: "2"}).commit_transaction()

        with stale.transaction() as transaction:
            transaction.set_properties({EPOCH: "1", "commit.retry.num-retries": "0"})
            with transaction.update_snapshot().fast_append():
                pass

        assert table.opened.properties[EPOCH] == "1"

    def test_the_library_s_own_retry_would_let_a_stale_commit_through(self, table: IcebergHarness) -> None:
        Run(table, epoch=1).fence()
        stale = table.opened
        Run(table, epoch=2).fence()

        with stale.transaction() as transaction:
            transaction.set_properties({EPOCH: "1"})
            with transaction.update_snapshot().fast_append():
                pass

        assert table.opened.properties[EPOCH] == "1"


def test_files_of_a_commit_that_may_still_come_are_kept(table: IcebergHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is lost, somebody alters the table so that rows do not fit, and the request gets through."""
    run = Run(table).fence()
    run.send(0)
    real = SqlCatalog.commit_table
    requests: list[Any] = []

    def lost(*arguments: Any) -> Any:
        requests.append(arguments)
        patch.setattr(SqlCatalog, "commit_table", real)
        table.rename_column()
        raise CommitStateUnknownException("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lost)
        (outcome,) = run.send(1)
    real(*requests[0])

    assert outcome.outcome is AttemptOutcome.FAILED
    assert run.receipted == [0, 1]
    assert table.files() == table.known_files()


def test_a_column_that_is_renamed_in_between_fails_the_batch_and_is_named(table: IcebergHarness) -> None:
    run = Run(table).fence()
    run.send(0)
    staged = run.stage(1)
    table.rename_column()

    (outcome,) = run.commit(*staged)

    assert outcome.error is not None
    assert "id is not in the table" in outcome.error.message
    assert table.files() == table.known_files()


def test_a_table_that_is_made_anew_meanwhile_takes_no_rows_of_ours(
    table: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(table).fence()
    staged = run.stage(0)

    def replace() -> None:
        with table.lake.catalog() as catalog:
            old = catalog.load_table(TABLE)
            catalog.drop_table(TABLE)
            new = catalog.create_table(TABLE, old.schema())
            head = old.current_snapshot()
            assert head is not None
            main = SetSnapshotRefUpdate.model_validate(
                {"ref-name": "main", "type": "branch", "snapshot-id": head.snapshot_id}
            )
            updates = (AddSnapshotUpdate(snapshot=head), main)
            new.catalog.commit_table(new, (), updates)  # even one that looks the same

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, once(replace)))
        (outcome,) = run.commit(*staged)

    assert outcome.outcome is AttemptOutcome.FAILED
    assert table.ids() == []


def test_two_that_add_columns_at_once_both_deliver(table: IcebergHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Run(table, grows=True).fence(), Run(table, ledger="another", grows=True).fence()
    one.send(0)
    mine = one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))
    theirs = two.writer.deliver(task(2), content(2, b=pa.array([2] * 10)))
    with monkeypatch.context() as patch:
        rival = once(lambda: two.commit(theirs))
        patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, rival))
        (first,) = one.commit(mine)
    (second,) = one.commit(one.writer.deliver(task(1), content(1, a=pa.array([1] * 10))))

    assert first.error is not None
    assert first.error.recoverable
    assert second.outcome is AttemptOutcome.DELIVERED
    rows = table.rows()
    assert (rows[10], rows[20]) == ({"id": 10, "b": None, "a": 1}, {"id": 20, "b": 2, "a": None})
    assert first.error.is_outage  # a table that others alter is nothing that the batch is guilty of
