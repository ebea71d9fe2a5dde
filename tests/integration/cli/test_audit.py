"""``airflow ckpt audit --against-sink`` on a real Delta table: they agree, and each kind of damage is found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter, record_error
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.airflow.ckpt import Ckpt, damage
from tests.integration.airflow.users import People, content

AUDIT = ("audit", "people", "--against-sink")


class Seen(People):
    """Ten lines in five batches of two: of each the first is delivered and the second dead-lettered; all settled."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        super().__init__(ledger, folder)
        self.table = folder / "out"
        with self.acquire() as run:
            run.plan()
            self.deliver(run, sorted(run.planned(), key=lambda batch: batch.key), half)
            run.settle()
            ledger.release(run.lease)


def half(batch: Batch) -> BatchContent:
    whole = content(batch)
    dead_letter = DeadLetter(batch.range.end - 1, None, b"{", record_error(ErrorType.MESSAGE_DESERIALIZATION, "cut"))
    return replace(whole, rows=whole.rows.slice(0, 1), dead_letters=[dead_letter])


@pytest.fixture
def seen(ledger: Ledger, tmp_path: Path) -> Seen:
    """The pipeline in the ledger that ``airflow ckpt`` finds."""
    return Seen(ledger, tmp_path)


def test_they_agree_and_it_is_said_what_was_compared(ckpt: Ckpt, seen: Seen) -> None:
    result = ckpt.json(*AUDIT)
    assert (result["ok"], result["sink"]["agrees"], result["sink"]["differences"]) == (True, True, [])
    assert result["sink"]["compared"] == {
        "receipts": 5,
        "not_settled_yet": [],
        "of_a_past_not_kept": 0,
        "dead_letters": 5,
        "delivered": 5,
        "target_rows": 5,
        "target_rows_unknown": None,
    }
    assert result["sink"]["accepted_losses"] == {"lost": [], "rows_missing": 0}
    assert "ledger and sink agree" in ckpt.table(*AUDIT)
    assert "sink" not in ckpt.json("audit", "people")
    assert seen.partition


def test_a_loss_that_a_person_accepted_is_listed_and_no_difference(ckpt: Ckpt, seen: Seen) -> None:
    shutil.rmtree(seen.table / "_ckpt")
    ckpt.json("accept-sink", "people", "--keep", "--reason", "its bookkeeping is gone for good")

    sink = ckpt.json(*AUDIT)["sink"]

    assert (sink["agrees"], sink["accepted_losses"]["rows_missing"]) == (True, -5)
    [lost] = sink["accepted_losses"]["lost"]
    assert (lost["batches"], lost["counts"]["delivered"]) == (5, 5)
    assert "accepted loss" in ckpt.table(*AUDIT)


def test_a_row_that_was_deleted_is_found(ckpt: Ckpt, seen: Seen) -> None:
    DeltaTable(seen.table).delete("id = 10")

    result, line = ckpt.failed(*AUDIT)

    (found,) = result["sink"]["differences"]
    assert (found["kind"], found["batch"]) == ("TargetRowsDiffer", None)
    assert "0 rows, 5 fewer than the 5" in found["message"]
    assert "--shared-target" in found["to_do"]
    assert "(TargetRowsDiffer)" in line
    shared = ckpt.json(*AUDIT, "--shared-target")["sink"]["compared"]
    assert (shared["target_rows"], shared["target_rows_unknown"]) == (None, "others write to the target too")


@pytest.mark.parametrize("size", [None, 0])
def test_a_data_file_that_is_missing_or_cut_off_is_named(ckpt: Ckpt, seen: Seen, size: int | None) -> None:
    """The table's log still counts its rows.

    :param size: bytes that are left of it, or None: it is gone
    """
    path = sorted(seen.table.glob("*.parquet"))[2]
    path.unlink() if size is None else path.write_bytes(b"")

    result, line = ckpt.failed(*AUDIT)

    (found,) = result["sink"]["differences"]
    assert found["kind"] == "TargetFileDamaged"
    assert str(path) in found["message"]
    assert "rewind" in found["to_do"]
    assert "TargetFileDamaged" in line


def test_a_receipt_that_was_deleted_in_the_sink_is_found(ckpt: Ckpt, seen: Seen) -> None:
    node = sorted(seen.table.rglob("receipts/*"))[-1]
    document = json.loads(node.read_bytes())
    document["receipts"] = [item for item in document["receipts"] if item["key"][2] != 3]
    node.write_text(json.dumps(document))

    result, line = ckpt.failed(*AUDIT)

    found = {item["kind"]: item for item in result["sink"]["differences"]}
    assert found.keys() == {"ReceiptMissing", "TargetRowsDiffer"}
    assert found["ReceiptMissing"]["batch"] == f"{seen.partition}#3"
    assert "rewind" in found["ReceiptMissing"]["to_do"]
    assert "ReceiptMissing" in line


def test_a_dead_letter_that_was_deleted_is_found(ckpt: Ckpt, seen: Seen) -> None:
    dead_letters = sorted(seen.table.with_name("out.dead_letters").rglob("*.jsonl"))
    assert len(dead_letters) == 5
    dead_letters[0].write_text("")

    result, _ = ckpt.failed(*AUDIT)

    (found,) = result["sink"]["differences"]
    assert (found["kind"], found["batch"]) == ("DeadLettersDiffer", f"{seen.partition}#0")
    assert "1 dead letters of attempt 1, and the sink holds 0" in found["message"]


@pytest.mark.parametrize("column", ["delivered", "dead_lettered"])
def test_a_count_that_was_changed_in_the_ledger_is_found(ckpt: Ckpt, seen: Seen, column: str) -> None:
    c = tables.receipt.c
    damage(tables.receipt.update().values({c[column]: c[column] + 1, c.filtered: c.filtered - 1}))

    result, _ = ckpt.failed(*AUDIT)

    (found,) = result["sink"]["differences"]
    assert found["kind"] == "ReceiptDiffers"
    assert f"{column} 6" in found["message"]
    assert found["partition"] == seen.partition


def test_an_index_of_dead_letters_that_was_changed_is_found(ckpt: Ckpt, seen: Seen) -> None:
    c = tables.dead_letter.c
    damage(tables.dead_letter.update().where(c.seq == 2).values(records=2))

    result, _ = ckpt.failed(*AUDIT)

    (found,) = result["sink"]["differences"]
    assert (found["kind"], found["batch"]) == ("DeadLetterIndexDiffers", f"{seen.partition}#2")
