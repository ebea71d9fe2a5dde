"""A table that lost delivered rows, though it still names the receipts, is detected; other changes are accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, SinkChangedError
from tests.integration.connectors.batches import expected
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.formats import FORMATS
from tests.integration.connectors.two_phase.harness import Run, TableHarness

KEYS = [BatchKey(1, "files", seq) for seq in range(3)]
LATER = BatchKey(1, "files", 3)


@pytest.fixture
def delivered(table: TableHarness) -> TableHarness:
    """A table with three batches that three waves of epoch 1 delivered."""
    run = Run(table).fence()
    for seq in range(3):
        run.send(seq)
    assert table.version == table.version_after(3)
    return table


@pytest.mark.usefixtures("delivered")
class TestRestore:
    @pytest.mark.parametrize(("waves", "lost"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2])])
    def test_to_an_older_version_is_told_and_the_lost_batches_are_named(
        self, table: TableHarness, waves: int, lost: list[int]
    ) -> None:
        table.restore(waves)
        sink = Run(table, epoch=2).sink

        claims = sink.claims()

        assert claims.loss_evidence is not None
        assert f"rolled back to its version {table.version_after(waves)}," in claims.loss_evidence
        assert f"delivered rows up to version {table.version_after(3)}" in claims.loss_evidence
        assert [key.seq for key in sink.batches_without_receipt(KEYS)] == lost

    def test_that_others_wrote_after_is_told_and_so_is_one_after_a_compaction(self, table: TableHarness) -> None:
        table.compact()
        table.restore(2)
        table.append(99)
        table.compact()
        table.append(98)
        sink = Run(table, epoch=2).sink

        assert sink.claims().loss_evidence is not None
        assert [key.seq for key in sink.batches_without_receipt(KEYS)] == [2]

    def test_that_was_taken_back_lost_nothing(self, table: TableHarness) -> None:
        table.restore(1)
        table.restore(3)
        sink = Run(table, epoch=2).sink

        assert (sink.claims().loss_evidence, sink.batches_without_receipt(KEYS)) == (None, [])
        assert table.ids() == expected(0, 1, 2)

    def test_that_undoes_what_others_did_after_our_rows_lost_nothing(self, table: TableHarness) -> None:
        table.delete("id < 25")
        table.restore(3)
        sink = Run(table, epoch=2).sink

        assert (sink.claims().loss_evidence, sink.batches_without_receipt(KEYS)) == (None, [])

    def test_between_two_waves_stops_the_run_before_its_next_commit(self, table: TableHarness) -> None:
        run = Run(table, epoch=2).fence()
        run.send(3)
        table.restore(2)
        state = table.state

        (outcome,) = run.send(4)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert f"rolled back to its version {table.version_after(2)}," in outcome.error.message
        assert default_action(outcome.error) is ErrorAction.HALT
        assert table.state == state

    def test_that_comes_between_look_and_fence_is_not_accepted_unseen(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table, epoch=2)
        assert run.sink.claims().loss_evidence is None
        step = table.steps["open to fence"]
        with monkeypatch.context() as patch:
            patch.setattr(*step, before(step.real, once(lambda: table.restore(1))))
            with pytest.raises(SinkChangedError, match=f"to its version {table.version_after(1)}, but"):
                run.fence()

        assert Run(table, epoch=3).sink.claims().loss_evidence is not None

    def test_that_was_accepted_is_not_told_again_and_the_next_one_is(self, table: TableHarness) -> None:
        table.restore(1)
        run = Run(table, epoch=2)
        run.sink.claims()
        run.fence()

        assert Run(table, epoch=3).sink.claims().loss_evidence is None
        run.send(3)
        assert table.ids() == expected(0, 3)
        assert Run(table, epoch=3).fence().sink.claims().loss_evidence is None
        table.restore(1)
        sink = Run(table, epoch=4).sink
        assert sink.claims().loss_evidence is not None
        assert LATER in sink.batches_without_receipt([*KEYS, LATER])

    @pytest.mark.parametrize("damage", [b"", b"[]", b'{"version": "9"}', None])
    def test_is_told_again_where_nothing_says_that_it_was_accepted(
        self, table: TableHarness, damage: bytes | None
    ) -> None:
        table.restore(1)
        run = Run(table, epoch=2)
        run.sink.claims()
        run.fence()
        accepted = table.bookkeeping / "accepted"
        accepted.unlink() if damage is None else accepted.write_bytes(damage)

        assert Run(table, epoch=3).sink.claims().loss_evidence is not None


@pytest.mark.parametrize(
    ("table", "change"), [(kind, change) for kind in FORMATS for change in FORMATS[kind].changes], indirect=["table"]
)
def test_what_others_do_to_a_table_is_no_loss_of_ours(
    delivered: TableHarness, change: Callable[[TableHarness], None]
) -> None:
    target = Run(delivered).sink.claims().target
    change(delivered)
    sink = Run(delivered, epoch=2).sink

    claims = sink.claims()

    assert (claims.loss_evidence, claims.target, claims.epoch) == (None, target, 1)
    assert sink.batches_without_receipt(KEYS) == []
    assert Run(delivered, epoch=2).fence().receipted == [0, 1, 2]


@pytest.mark.usefixtures("delivered")
class TestTarget:
    def test_a_table_that_was_dropped_and_created_again_is_another_one(self, table: TableHarness) -> None:
        target = Run(table).sink.claims().target
        table.drop()
        assert Run(table).sink.claims().target is None
        table.create()
        sink = Run(table, epoch=2).sink

        assert target is not None
        assert sink.claims().target not in (None, target)
        assert sink.batches_without_receipt(KEYS) == KEYS

    def test_a_table_has_its_place_in_its_location(self, table: TableHarness) -> None:
        assert Run(table).sink.location == table.location

    def test_receipts_outlive_the_table_s_history(self, table: TableHarness) -> None:
        table.clean_up_history()

        fresh = Run(table, epoch=2).fence()

        assert fresh.receipted == [0, 1, 2]
        assert fresh.stage(1)[0].receipt_existed
        assert table.ids() == expected(0, 1, 2)


@pytest.mark.parametrize(
    ("table", "lose"), [(kind, lose) for kind in FORMATS for lose in FORMATS[kind].losses], indirect=["table"]
)
class TestLostReceipts:
    """The newest link of the chain, or all bookkeeping, is gone; rows are all there."""

    @pytest.fixture
    def bare(self, delivered: TableHarness, lose: Callable[[TableHarness], None]) -> TableHarness:
        lose(delivered)
        return delivered

    def test_nothing_is_sent_until_a_person_accepts(self, bare: TableHarness) -> None:
        run, state = Run(bare, epoch=2), bare.state

        with pytest.raises(SinkChangedError, match=r"receipts .* is missing or damaged"):
            run.fence()

        assert bare.state == state
        told = run.sink.claims().loss_evidence
        assert told is not None
        assert "missing or damaged" in told
        assert run.sink.batches_without_receipt(KEYS) == KEYS

    def test_an_accepted_table_goes_on_with_a_chain_of_its_own(self, bare: TableHarness) -> None:
        run = Run(bare, epoch=2)
        run.sink.claims()
        run.fence()

        run.send(3)

        assert bare.ids() == expected(0, 1, 2, 3)
        again = Run(bare, epoch=3)
        assert again.sink.claims().loss_evidence is None
        assert again.sink.batches_without_receipt([LATER]) == []
        assert again.fence().receipted == [3]
