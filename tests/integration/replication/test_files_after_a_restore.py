"""A restored or lost ledger gets the discovered files back from the sink, in their original order."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions.adopt_other_ledger import adopt
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.files.files_sink_support import ids as ids_in
from tests.integration.connectors.files.files_support import lines, put, put_rows
from tests.services.ledgers import new_ledger_file
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Inbox:
    """A directory to read, a sink, and a ledger in a file that can be copied."""

    def __init__(self, spark: SparkSession, folder: Path, dsn: str, sink: dict[str, Any]) -> None:
        self.spark, self.folder, self.dsn = spark, folder, dsn
        self.inbox = folder / "in"
        self.inbox.mkdir()
        self.file = folder / "ckpt.db"
        self.document: dict[str, Any] = {
            "name": "inbox",
            "source": {"type": "files", "path": str(self.inbox)},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": sink,
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": 4},
        }
        new_ledger_file(self.file)

    @contextmanager
    def opened(self) -> Iterator[Replication]:
        """The pipeline on the ledger as it is now."""
        with Ledger.open(f"sqlite:///{self.file}") as ledger:
            yield Replication(self.spark, ledger, self.dsn, self.document)

    def run(self) -> Counts:
        """One run; what it counted."""
        with self.opened() as pipeline:
            return pipeline.run().records

    def back_up(self) -> Path:
        """A copy of the ledger as it is."""
        return Path(shutil.copyfile(self.file, self.folder / "backup.db"))

    def restore(self, backup: Path) -> None:
        """The ledger as it was."""
        shutil.copyfile(backup, self.file)

    def lose_ledger(self) -> str:
        """A new ledger in place of the old one; the old one's id."""
        with self.opened() as pipeline:
            lost = pipeline.ledger.id
        self.file.unlink()
        new_ledger_file(self.file)
        return lost

    def delivered(self) -> list[int]:
        """The ids in the target, sorted, with repetitions."""
        if self.document["sink"]["type"] == "files":
            return ids_in(self.folder / "out")
        return [found for (found,) in execute(self.dsn, "SELECT id FROM target ORDER BY id")]

    def agrees(self) -> bool:
        """Return whether the ledger is consistent and agrees with the sink."""
        with self.opened() as pipeline:
            found = audit_sink(pipeline.setup(), lambda _: None)
            return bool(found["agrees"]) and pipeline.ledger.audit("inbox")["violations"] == []


@pytest.fixture(params=["files", "postgres"])
def inbox(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, postgres_server: PostgresServer
) -> Inbox:
    dsn = postgres_server.new_database()
    execute(dsn, "CREATE TABLE target (id bigint)")
    sinks: dict[str, dict[str, Any]] = {
        "files": {"type": "files", "path": str(tmp_path / "out"), "format": "jsonl"},
        "postgres": {"type": "postgres", "connection": DATABASE, "table": "target"},
    }
    return Inbox(spark, tmp_path, dsn, sinks[request.param])


def test_files_found_anew_after_a_restore_in_another_order_lose_and_double_nothing(inbox: Inbox) -> None:
    put(inbox.inbox / "a.jsonl", lines(0, 10), at=1000)
    assert inbox.run() == Counts(10, 10, 0, 0)
    backup = inbox.back_up()
    for number, at in ((1, 900), (2, 800), (3, 700)):  # each run finds a file that is older than the one before
        put(inbox.inbox / f"late{number}.jsonl", lines(10 * number, 10 - number), at=at)
        inbox.run()
    inbox.restore(backup)
    put(inbox.inbox / "new.jsonl", lines(100, 5), at=600)

    assert inbox.run().read >= 5
    assert inbox.delivered() == [*range(10), *range(10, 19), *range(20, 28), *range(30, 37), *range(100, 105)]
    assert inbox.run() == Counts()
    assert inbox.agrees()


def test_a_new_ledger_that_adopts_receipts_takes_the_order_of_files_from_the_sink(inbox: Inbox) -> None:
    put(inbox.inbox / "skipped.jsonl", lines(900, 3), at=5000)
    inbox.document["source"]["start_from"] = "latest"
    inbox.run()
    for number, at in ((1, 900), (2, 800)):
        put(inbox.inbox / f"late{number}.jsonl", lines(10 * number, 10 - number), at=at)
        inbox.run()
    (inbox.inbox / "late1.jsonl").unlink()  # delivered, so nobody needs it
    lost = inbox.lose_ledger()
    put(inbox.inbox / "new.jsonl", lines(100, 5), at=600)

    with inbox.opened() as pipeline:
        adopt(pipeline.setup(), lost, actor="ann", reason="its disk is gone")
    inbox.run()

    assert inbox.delivered() == [*range(10, 19), *range(20, 28), *range(100, 105)]
    assert inbox.agrees()


def test_a_run_that_died_before_the_ledger_knew_its_files_leaves_their_order(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.run()
    put(inbox.inbox / "b.jsonl", lines(0, 5), at=2000)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "plan", _die)
        with pytest.raises(KeyboardInterrupt):
            inbox.run()
    put(inbox.inbox / "a.jsonl", lines(5, 5), at=1000)

    inbox.run()

    assert inbox.delivered() == [*range(10)]
    with inbox.opened() as pipeline:
        assert [Path(file.path).name for file in pipeline.ledger.files("inbox")] == ["b.jsonl", "a.jsonl"]


def test_without_the_sink_s_list_a_restored_ledger_is_refused_by_name(inbox: Inbox) -> None:
    put(inbox.inbox / "a.jsonl", lines(0, 10), at=1000)
    inbox.run()
    backup = inbox.back_up()
    put(inbox.inbox / "b.jsonl", lines(10, 10), at=900)
    inbox.run()
    forget_lists(inbox)
    inbox.restore(backup)

    with pytest.raises(SourceError, match=r"receipt of \[\d+, \d+\) of files#\d+, but the 1 source files .* Restore"):
        inbox.run()
    lost = inbox.lose_ledger()
    with inbox.opened() as pipeline:
        adopt(pipeline.setup(), lost, actor="ann", reason="its disk is gone")
    with pytest.raises(SourceError, match="but no list of the source files that they count"):
        inbox.run()
    assert inbox.delivered() == [*range(20)]


def test_an_audit_tells_of_a_ledger_whose_files_are_in_another_order_than_the_sink_s(inbox: Inbox) -> None:
    put(inbox.inbox / "a.jsonl", lines(0, 4), at=1000)
    put(inbox.inbox / "b.jsonl", lines(4, 4), at=2000)
    inbox.run()
    with inbox.opened() as pipeline, sqlite3.connect(inbox.file) as ledger:
        ledger.execute("UPDATE ckpt_source_file SET path = replace(path, 'b.jsonl', 'c.jsonl')")
        ledger.commit()
        (found,) = audit_sink(pipeline.setup(), lambda _: None)["differences"]

    assert found["kind"] == "SourceFilesDiffer"
    assert "source file 1 is" in found["message"]


def test_rows_of_parquet_files_keep_their_places_after_a_restore(inbox: Inbox) -> None:
    inbox.document["source"]["format"] = "parquet"
    inbox.document["transform"] = {}
    put_rows(inbox.inbox / "a.parquet", pa.table({"id": range(5)}), at=1000)
    inbox.run()
    backup = inbox.back_up()
    for number, at in ((1, 900), (2, 800)):
        put_rows(inbox.inbox / f"late{number}.parquet", pa.table({"id": range(10 * number, 10 * number + 7)}), at=at)
        inbox.run()
    inbox.restore(backup)
    put_rows(inbox.inbox / "new.parquet", pa.table({"id": range(100, 103)}), at=600)

    inbox.run()

    assert inbox.delivered() == [*range(5), *range(10, 17), *range(20, 27), *range(100, 103)]
    assert inbox.agrees()


def _die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def forget_lists(inbox: Inbox) -> None:
    """The sink as one that never kept a list of files."""
    if inbox.document["sink"]["type"] == "files":
        (kept,) = (inbox.folder / "out" / "_ckpt").glob("*/inbox/files")
        shutil.rmtree(kept)
    else:
        execute(inbox.dsn, "DELETE FROM ckpt_sink_replay WHERE partition LIKE 'files:%'")
