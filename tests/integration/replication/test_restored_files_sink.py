"""A files sink that lost its directory, its bookkeeping or a file is reported before a run sends anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.errors import SinkChangedError
from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.run.acquire import acquire
from tests.integration.connectors.files.files_sink_support import ids, visible
from tests.integration.connectors.files.files_support import lines, put
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def inbox(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Replication]:
    (tmp_path / "in").mkdir()
    document = {
        "name": "inbox",
        "source": {"type": "files", "path": str(tmp_path / "in")},
        "transform": {"decode": "json", "schema": "id bigint"},
        "sink": {"type": "files", "path": str(tmp_path / "out"), "format": "jsonl"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 10},
    }
    put(tmp_path / "in" / "a.jsonl", lines(0, 30))
    with make_ledger(postgres_server) as ledger:
        yield Replication(spark, ledger, "", document)


def refused(inbox: Replication) -> str:
    """Run, and expect a refusal that sends nothing; its text."""
    out = Path(inbox.document["sink"]["path"])
    before = visible(out) if out.is_dir() else []
    with pytest.raises(SinkChangedError) as caught:
        inbox.run()
    assert (visible(out) if out.is_dir() else []) == before
    assert "airflow ckpt accept-sink inbox" in str(caught.value)
    return str(caught.value)


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_bookkeeping_removed_while_a_batch_is_unsettled_is_refused(inbox: Replication, tmp_path: Path) -> None:
    inbox.run()
    with pytest.raises(KeyboardInterrupt), acquire(inbox.setup()):
        raise KeyboardInterrupt
    shutil.rmtree(tmp_path / "out" / "_ckpt")

    assert "does not exist any more" in refused(inbox)
    assert ids(tmp_path / "out") == [*range(30)]


def test_an_emptied_directory_is_refused_and_agrees_once_it_was_sent_all_again(
    inbox: Replication, tmp_path: Path
) -> None:
    inbox.run()
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()

    assert "its fence is at epoch 0, and this ledger raised it to 1" in refused(inbox)
    action = accept_sink.make_acceptance(inbox.setup(), resend=True)
    accept_sink.apply_sink_change(inbox.setup(), action, actor="ann", reason="the disk is gone")
    inbox.run()
    assert ids(tmp_path / "out") == [*range(30)]
    assert audit_sink(inbox.setup(), lambda _: None)["differences"] == []


@pytest.mark.parametrize("idle", [False, True])
def test_files_that_were_removed_are_told_and_the_key_that_allows_it_is_named(
    inbox: Replication, tmp_path: Path, idle: bool
) -> None:
    inbox.run()
    if idle:
        inbox.run()
    for file in visible(tmp_path / "out"):
        file.unlink()

    told = refused(inbox)

    assert "3 files of delivered batches" in told
    assert "sink.files_may_go: true" in told
    found = audit_sink(inbox.setup(), lambda _: None)
    assert {difference["kind"] for difference in found["differences"]} == {"ReceiptMissing", "SinkChanged"}
    allowed = inbox.changed(sink={"files_may_go": True})
    assert allowed.run().route == ["done"]
    assert audit_sink(allowed.setup(), lambda _: None)["agrees"]


@pytest.mark.parametrize("gone", [slice(1, 2), slice(0, 2), slice(0, 3)])
def test_files_that_were_removed_are_sent_again_once_a_person_says_so(
    inbox: Replication, tmp_path: Path, gone: slice
) -> None:
    inbox.run()
    put(tmp_path / "in" / "b.jsonl", lines(30, 10))
    inbox.run()
    inbox.run()
    for file in visible(tmp_path / "out")[gone]:
        file.unlink()
    newest = visible(tmp_path / "out")[-1]
    newest.rename(tmp_path / "aside")
    assert "the file of delivered batches" in refused(inbox)
    action = accept_sink.make_acceptance(inbox.setup(), resend=True)
    accept_sink.apply_sink_change(inbox.setup(), action, actor="ann", reason="a clean-up job took them")

    inbox.run()

    assert ids(tmp_path / "out") == [*range(40)]
    found = audit_sink(inbox.setup(), lambda _: None)
    assert (found["differences"], found["compared"]["target_rows"]) == ([], 40)
    assert inbox.run().route == ["done"]


@pytest.mark.parametrize("gone", [slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 3)])
def test_a_file_that_went_before_the_ledger_heard_of_its_batch_is_sent_again_once_a_person_says_so(
    inbox: Replication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: slice
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(inbox.ledger), "settle", _killed)
        with pytest.raises(KeyboardInterrupt):
            inbox.run()
    for file in visible(tmp_path / "out")[gone]:
        file.unlink()
    assert "of delivered batches" in refused(inbox)
    action = accept_sink.make_acceptance(inbox.setup(), resend=True)
    accept_sink.apply_sink_change(inbox.setup(), action, actor="ann", reason="a clean-up job took it")

    assert inbox.run().route == ["done"]

    assert ids(tmp_path / "out") == [*range(30)]
    assert audit_sink(inbox.setup(), lambda _: None)["differences"] == []


def test_a_settled_file_that_went_alone_is_sent_again_once_a_person_says_so(inbox: Replication, tmp_path: Path) -> None:
    inbox.run()
    put(tmp_path / "in" / "b.jsonl", lines(30, 30))
    inbox.run()
    inbox.run()
    by_time = sorted(visible(tmp_path / "out"), key=lambda file: file.stat().st_mtime_ns)
    by_time[-2].unlink()
    refused(inbox)
    action = accept_sink.make_acceptance(inbox.setup(), resend=True)
    accept_sink.apply_sink_change(inbox.setup(), action, actor="ann", reason="a clean-up job took it")

    assert inbox.run().route == ["done"]

    assert ids(tmp_path / "out") == [*range(60)]
    assert audit_sink(inbox.setup(), lambda _: None)["differences"] == []


def test_a_directory_that_was_restored_from_an_older_copy_is_refused(inbox: Replication, tmp_path: Path) -> None:
    inbox.run()
    shutil.copytree(tmp_path / "out", tmp_path / "copy", symlinks=True)
    put(tmp_path / "in" / "b.jsonl", lines(30, 10))
    inbox.run()
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "copy").rename(tmp_path / "out")

    assert "its fence is at epoch 1, and this ledger raised it to 2" in refused(inbox)


def test_a_directory_whose_link_leads_elsewhere_is_refused(inbox: Replication, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    linked = inbox.changed(sink={"path": str(tmp_path / "link")})
    linked.run()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "two")

    with pytest.raises(SinkChangedError, match=f"it is files://{tmp_path}/two.*airflow ckpt move inbox"):
        linked.run()
    assert list((tmp_path / "two").iterdir()) == []
