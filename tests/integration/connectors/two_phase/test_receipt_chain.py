"""The chain of receipt nodes in Delta and Iceberg tables: lost and altered nodes, and the number of nodes read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ReceiptsUnreadableError
from airflow_provider_ckpt.core.receipt import KnownReceipts
from tests.integration.connectors.batches import content, expected, task
from tests.integration.connectors.two_phase.harness import Run, TableHarness

KEYS = [BatchKey(1, "files", seq) for seq in range(4)]


def accept(run: Run) -> Run:
    """Fence a table whose receipts cannot all be read, as it is done once a person has accepted that."""
    with pytest.raises(ReceiptsUnreadableError):
        list(run.sink.receipts({}))
    return run.fence()


def unlink(node: Path) -> None:
    node.unlink()


def cut_off(node: Path) -> None:
    node.write_bytes(node.read_bytes()[:-20])


def fill_with_noise(node: Path) -> None:
    node.write_bytes(b"\xff\x00garbage")


def lead_in_a_circle(node: Path) -> None:
    document = json.loads(node.read_bytes())
    node.write_text(json.dumps(document | {"previous": int(node.stem)}))


def mix_up_types(node: Path) -> None:
    document = json.loads(node.read_bytes())
    node.write_text(json.dumps(document | {"version": "9", "previous": "8"}))


def nest_deeply(node: Path) -> None:
    node.write_bytes(b"[" * 200_000)


DAMAGES = [unlink, cut_off, fill_with_noise, lead_in_a_circle, mix_up_types, nest_deeply]


class TestAnOlderNodeThatIsLost:
    """Four batches in a node each; the second node is lost, so nothing is known of batches 0 and 1."""

    @pytest.fixture(params=DAMAGES)
    def broken(self, table: TableHarness, request: pytest.FixtureRequest) -> TableHarness:
        run = Run(table, epoch=1).fence()
        for seq in range(4):
            run.send(seq)
        request.param(table.nodes[1])
        return table

    def test_is_told_by_its_name_and_by_what_it_held(self, broken: TableHarness) -> None:
        receipts = Run(broken, epoch=2).sink.receipts({})

        assert [next(receipts).key, next(receipts).key] == KEYS[2:]
        with pytest.raises(ReceiptsUnreadableError, match="missing or damaged") as raised:
            next(receipts)

        told = str(raised.value)
        assert str(broken.nodes[0].parent) in told
        assert "the receipts up to files#1 cannot be read" in told
        assert "pipeline flights" in told
        assert "airflow ckpt accept-sink flights --keep" in told

    def test_takes_no_newer_receipt_with_it(self, broken: TableHarness) -> None:
        sink = Run(broken, epoch=2).sink

        assert sink.claims().loss_evidence is None
        assert sink.batches_without_receipt(KEYS) == KEYS[:2]

    def test_does_not_let_a_batch_in_again_of_which_nothing_is_known(self, broken: TableHarness) -> None:
        run = Run(broken, epoch=2).fence()

        (staged,) = run.stage(0)

        assert staged.outcome is AttemptOutcome.FAILED
        assert staged.error is not None
        assert "missing or damaged" in staged.error.message
        assert default_action(staged.error) is ErrorAction.HALT
        assert broken.ids() == expected(0, 1, 2, 3)

    def test_is_cut_off_once_a_person_accepts_and_newer_receipts_stay(self, broken: TableHarness) -> None:
        run = accept(Run(broken, epoch=2))

        assert run.receipted == [2, 3]
        run.send(3, 4)
        assert broken.ids() == expected(0, 1, 2, 3, 4)

        again = Run(broken, epoch=3)
        assert again.sink.claims().loss_evidence is None
        assert again.fence().receipted == [2, 3, 4]
        assert again.sink.batches_without_receipt([*KEYS[2:], BatchKey(1, "files", 4)]) == []

    def test_may_be_followed_by_another_one(self, broken: TableHarness) -> None:
        of_batch_2 = broken.nodes[-2]
        accept(Run(broken, epoch=2)).send(4)
        of_batch_2.unlink()

        assert accept(Run(broken, epoch=3)).receipted == [3, 4]
        assert Run(broken, epoch=4).fence().receipted == [3, 4]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file of a node that is read from now on."""
    seen: list[Path] = []
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.parent.name == "receipts":
            seen.append(path)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    return seen


def test_an_idle_partition_whose_last_receipt_lies_far_back_is_not_looked_up_node_by_node(
    table: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run does: look, fence, import, commit, and look again."""
    first = Run(table, epoch=1).fence()
    idle = [first.writer.deliver(task(seq, partition="idle"), content(seq)) for seq in (0, 1)]
    first.commit(*idle)
    for seq in range(60):
        first.send(seq)
    Run(table, epoch=2).fence().send(60)
    length = len(table.nodes)
    asked = [BatchKey(1, "idle", 1), BatchKey(1, "idle", 0), BatchKey(1, "files", 60)]
    run, seen = Run(table, epoch=3), reads(monkeypatch)

    run.sink.claims()
    assert run.sink.batches_without_receipt(asked) == []
    run.fence()
    assert list(run.sink.receipts({"idle": KnownReceipts(1, 20), "files": KnownReceipts(1, 610)})) == []
    run.send(61)
    assert run.sink.batches_without_receipt(asked) == []

    assert length == 62
    assert len(set(seen)) <= 4
    assert len(seen) <= 16


def test_a_receipt_that_was_never_there_is_missing_however_far_back(table: TableHarness) -> None:
    run = Run(table, epoch=1).fence()
    run.send(0)
    run.send(2)
    Run(table, epoch=2).fence().send(3)
    sink = Run(table, epoch=3).sink

    assert sink.batches_without_receipt([*KEYS, BatchKey(2, "files", 0), BatchKey(1, "idle", 0)]) == [
        KEYS[1],
        BatchKey(2, "files", 0),
        BatchKey(1, "idle", 0),
    ]


def test_a_chain_of_an_earlier_version_is_read_and_goes_on(table: TableHarness) -> None:
    """Its nodes sum up no runs of batches."""
    run = Run(table, epoch=1).fence()
    for seq in range(3):
        run.send(seq)
    for node in table.nodes:
        document = json.loads(node.read_bytes())
        del document["cut"]
        document["reach"] = [item[:4] for item in document["reach"]]
        node.write_text(json.dumps(document))

    again = Run(table, epoch=2).fence()
    again.send(3)

    assert again.receipted == [0, 1, 2, 3]
    assert Run(table, epoch=3).sink.batches_without_receipt(KEYS) == []
