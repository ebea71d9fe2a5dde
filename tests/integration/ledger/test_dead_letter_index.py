"""The index of dead letters on both databases: states, what a replay's receipts say, and what outlives the ledger."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_index import AttemptKey, DeadLetters, DeadLetterState
from airflow_provider_ckpt.core.dead_letter_replay import LostReplays, Replay
from airflow_provider_ckpt.core.dead_letter_selection import Selection, select
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, receipt_of

TYPES = {"Sink": 3, "Serialization": 2}


def parked(acts: Acts) -> list[Receipt]:
    """Two batches of ten, each with five dead letters."""
    receipts = []
    for batch in acts.send(10, 20):
        outcome = delivered(batch, dead=5, dead_letters=TYPES)
        acts.settle(outcome)
        assert outcome.receipt is not None
        receipts.append(outcome.receipt)
    return receipts


def chosen(acts: Acts, selection: Selection | None = None) -> tuple[DeadLetters, ...]:
    """Return the dead letters that a selection selects now."""
    index = acts.ledger.dead_letter_index("orders")
    return tuple(select(index.entries, selection or Selection(), index.rereads))


def states(ledger: Ledger) -> dict[str, int]:
    """Return the number of dead letters in each state."""
    counts: Counter[str] = Counter()
    for entry in ledger.dead_letter_index("orders").entries:
        counts[entry.state.value] += entry.dead_letters.records
    return dict(counts)


def replay(acts: Acts, selection: Selection | None = None) -> str:
    """Ask for a replay, and plan it as one batch; its side partition."""
    before = set(acts.ledger.partitions("orders"))
    result = acts.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=chosen(acts, selection))
    assert result.refusal is None
    (side,) = set(acts.ledger.partitions("orders")) - before
    return side


def send(acts: Acts, side: str) -> Batch:
    """Begin all of a replay as one batch."""
    (batch,) = acts.send(acts.partition(side).limit or 0, name=side)
    return batch


@pytest.fixture
def acts(ledger: Ledger) -> Acts:
    """Pipeline ``orders`` with ten dead letters."""
    made = Acts(ledger).start("t")
    parked(made)
    return made


def test_a_replay_takes_its_letters_and_its_receipt_says_what_became_of_them(acts: Acts) -> None:
    side = replay(acts, Selection(types=frozenset({"Sink"})))
    assert (side, acts.partition(side).limit) == ("dlq:2:t", 6)
    assert states(acts.ledger) == {"replaying": 6, "parked": 4}

    acts.settle(delivered(send(acts, side), dead=2, dead_letters={"Sink": 2}))

    assert states(acts.ledger) == {"replayed": 6, "parked": 4, "parked_again": 2}
    (again,) = [e for e in acts.ledger.dead_letter_index("orders").entries if e.state is DeadLetterState.PARKED_AGAIN]
    assert (again.dead_letters.key, again.replays, again.range) == (BatchKey(2, side, 0), 1, Range(0, 20))
    assert acts.partition(side).committed == 6
    assert acts.ledger.status("orders")["dead_letters"] == {"Serialization": 4, "Sink": 2}
    assert acts.ledger.audit("orders")["violations"] == []


def test_of_two_replays_of_one_selection_the_second_finds_nothing(acts: Acts) -> None:
    dead_letters = chosen(acts)

    first = acts.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)
    second = acts.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)
    overlapping = acts.action(ActionKind.DISCARD_DEAD_LETTERS, dead_letters=dead_letters)

    assert first.applied
    assert [second.applied, overlapping.applied] == [False, False]
    assert "parked any more" in (second.refusal or "")
    assert [name for name in acts.ledger.partitions("orders") if name != "t"] == ["dlq:2:t"]


def test_a_batch_of_a_replay_decides_only_about_its_own_letters(acts: Acts) -> None:
    side = replay(acts)
    first, second = acts.send(4, 10, name=side)

    acts.settle(delivered(first))
    assert states(acts.ledger) == {"replayed": 4, "replaying": 6}
    acts.settle(delivered(second))

    assert states(acts.ledger) == {"replayed": 10}
    assert acts.ledger.audit("orders")["violations"] == []


@pytest.mark.parametrize("started", [True, False])
def test_a_replay_that_is_let_go_leaves_its_letters_as_they_were(acts: Acts, started: bool) -> None:
    side = replay(acts, Selection(stop_at=3))
    (batch,) = acts.plan(3, name=side)
    if started:
        (open_one,) = acts.begin([batch])
        acts.again().reconcile(receipt_of(open_one, Verdict.VOID))
    else:
        acts.action(ActionKind.SKIP, batch)

    assert states(acts.ledger) == {"parked": 10}
    assert sum(dead_letters.records for dead_letters in chosen(acts)) == 10


def test_sent_at_most_once_they_are_done(acts: Acts) -> None:
    side = replay(acts)
    acts.begin(acts.plan(10, name=side), at_most_once=True)

    assert states(acts.ledger) == {"replayed": 10}


def test_what_a_rewind_reads_again_is_neither_replayed_nor_discarded(acts: Acts) -> None:
    dead_letters = chosen(acts)
    acts.action(ActionKind.REWIND, positions={"t": 10})

    assert {item.key.seq for item in chosen(acts)} == {0}
    result = acts.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)

    assert (result.applied, states(acts.ledger)) == (True, {"replaying": 5, "parked": 5})


def test_what_a_replayed_range_read_again_is_not_replayed_even_after_collection(acts: Acts) -> None:
    acts.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    acts.deliver(10, name="replay:2:t")
    assert {item.key.seq for item in chosen(acts)} == {1}
    acts.wait(days=90)
    gone = acts.ledger.garbage_collect("orders", keep=timedelta(days=1), actor="ann", now=acts.now)

    assert gone["side_partitions"] == 1
    assert {item.key.seq for item in chosen(acts)} == {1}


def test_types_are_learned_once_and_only_while_nothing_was_decided(ledger: Ledger) -> None:
    acts = Acts(ledger).start("t")
    (batch,) = acts.send(10)
    acts.again().reconcile(receipt_of(batch, dead=5))
    source = AttemptKey(batch.key, 1, 1)

    ledger.set_error_types("orders", {source: {"Sink": 4}})
    assert [entry.dead_letters.error_type for entry in ledger.dead_letter_index("orders").entries] == ["unknown"]
    ledger.set_error_types("orders", {source: TYPES})
    ledger.set_error_types("orders", {source: {"Io": 5}})

    found = [(e.dead_letters.error_type, e.dead_letters.records) for e in ledger.dead_letter_index("orders").entries]
    assert found == [("Serialization", 2), ("Sink", 3)]


def test_a_lost_ledger_is_told_by_the_sink_what_was_replayed(ledger: Ledger) -> None:
    acts = Acts(ledger).start("t")
    batch = Batch(BatchKey(1, "t", 0), Range(0, 10), attempts=1)
    sent = DeadLetters(batch.key, "Sink", 1, 2, 1, 1)
    first, second = BatchKey(3, "dlq:3:t", 0), BatchKey(4, "dlq:4:t", 0)
    again = DeadLetters(first, "Sink", 0, 1, 1, 1)
    receipts = [
        Receipt(second, Range(0, 1), Verdict.DELIVERED, 1, 1, Counts(1, 1), NOW),
        Receipt(first, Range(0, 2), Verdict.DELIVERED, 1, 1, Counts(2, 1, 0, 1), NOW),
        receipt_of(batch, dead=5),
    ]
    names = {"dlq:3:t": 3, "dlq:4:t": 4}
    assert ledger.unknown_replays("orders", names) == ["dlq:3:t", "dlq:4:t"]
    known = LostReplays(
        {"dlq:4:t": Replay((again,)), "dlq:3:t": Replay((sent,))},
        {sent.source: TYPES, again.source: {"Sink": 1}},
    )

    ledger.reconcile(acts.lease, receipts, now=acts.now, forgotten=known)

    assert states(ledger) == {"parked": 3, "replayed": 3}
    assert ledger.unknown_replays("orders", names) == []
    assert [acts.partition(name).committed for name in names] == [2, 1]
    assert replay(acts) == "dlq:5:t"
    assert ledger.audit("orders")["violations"] == []


def test_a_collected_replay_is_not_taken_for_a_forgotten_one(acts: Acts) -> None:
    side = replay(acts)
    acts.settle(delivered(send(acts, side)))
    acts.wait(days=90)

    gone = acts.ledger.garbage_collect("orders", keep=timedelta(days=1), actor="ann", now=acts.now)

    assert gone["side_partitions"] == 1
    assert acts.ledger.unknown_replays("orders", {side: 2}) == []
    assert states(acts.ledger) == {"replayed": 10}


def test_an_older_version_is_not_left_with_what_it_would_get_wrong(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        acts = Acts(ledger).start("t")
        parked(acts)
        side = replay(acts, Selection(stop_at=1))
        with pytest.raises(LedgerStateError, match="has dead letters left to replay"):
            migrate.downgrade(empty_url, "0002")
        acts.settle(delivered(send(acts, side)))
        with pytest.raises(LedgerStateError, match="and others were not"):
            migrate.downgrade(empty_url, "0002")
        acts.settle(delivered(send(acts, replay(acts))))
        ledger.release(acts.lease)
    migrate.downgrade(empty_url, "0002")
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        assert states(ledger) == {"replayed": 10}


def test_an_index_that_was_wholly_decided_goes_down_and_up_again(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        acts = Acts(ledger).start("t")
        parked(acts)
        acts.action(ActionKind.DISCARD_DEAD_LETTERS, dead_letters=chosen(acts, Selection(types=frozenset({"Sink"}))))
        before = [(e.dead_letters, e.state, e.at) for e in ledger.dead_letter_index("orders").entries]
        ledger.release(acts.lease)
    migrate.downgrade(empty_url, "0002")
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        assert [(e.dead_letters, e.state, e.at) for e in ledger.dead_letter_index("orders").entries] == before
        assert states(ledger) == {"discarded": 6, "parked": 4}
        with ledger._engine.connect() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(tables.dead_letter)).scalar_one() == 4


@pytest.mark.parametrize("far", ["asked for", "planned", "planned in part", "held"])
def test_a_replay_that_waits_is_taken_back_by_a_rewind_that_reads_its_records_again(acts: Acts, far: str) -> None:
    side = replay(acts)
    if far != "asked for":
        batches = acts.plan(*((4,) if far == "planned in part" else (4, 10)), name=side)
        if far == "held":
            acts.action(ActionKind.HOLD, batches[0])

    result = acts.action(ActionKind.REWIND, positions={"t": 0})

    assert result.action.taken_back == (side,)
    assert (acts.partition(side).committed, acts.partition(side).blocking) == (10, {})
    assert states(acts.ledger) == {"parked": 10}
    assert chosen(acts) == ()
    assert acts.ledger.audit("orders")["violations"] == []


def test_an_attempt_of_a_replay_that_a_rewind_takes_back_is_ended_by_a_receipt(acts: Acts) -> None:
    side = replay(acts)
    batch = send(acts, side)
    acts.again().reconcile()
    acts.action(ActionKind.REWIND, positions={"t": 10})
    (planned,) = acts.partition(side).blocking.values()
    assert (planned.instruction, states(acts.ledger)) == (Instruction.VOID, {"replaying": 10})

    (void,) = acts.begin([planned])
    receipt = receipt_of(void, Verdict.VOID, epoch=acts.lease.epoch)
    acts.settle(Outcome(void.key, void.attempts, AttemptOutcome.VOID, receipt))

    assert batch.key == void.key
    assert states(acts.ledger) == {"parked": 10}
    assert {dead_letters.key.seq for dead_letters in chosen(acts)} == {0}


def test_a_replay_of_records_before_a_rewind_goes_on(acts: Acts) -> None:
    side = replay(acts, Selection(batches=frozenset({BatchKey(1, "t", 0)})))

    assert acts.action(ActionKind.REWIND, positions={"t": 10}).action.taken_back == ()

    acts.settle(delivered(send(acts, side)))
    assert states(acts.ledger) == {"replayed": 5, "parked": 5}


def test_a_rewind_that_cannot_take_a_replay_back_changes_nothing(acts: Acts) -> None:
    side = replay(acts)
    acts.action(ActionKind.DRAIN)

    result = acts.action(ActionKind.REWIND, positions={"t": 0})

    assert f"{side} replays dead letters that are to be read again" in str(result.refusal)
    assert (acts.partition().generation, states(acts.ledger)) == (1, {"replaying": 10})
    acts.action(ActionKind.RESUME)
    assert acts.action(ActionKind.REWIND, positions={"t": 0}).applied


@pytest.mark.parametrize("span", [Range(0, 10), Range(5, 6), Range(9, 20), Range(0, 20)])
@pytest.mark.parametrize("sent", [False, True])
def test_a_range_whose_dead_letters_a_replay_delivers_is_not_read_again(acts: Acts, span: Range, sent: bool) -> None:
    side = replay(acts, Selection(batches=frozenset({BatchKey(1, "t", 0)})))
    if sent:
        acts.settle(delivered(send(acts, side)))

    result = acts.action(ActionKind.REPLAY, ranges=(("t", span),))

    assert not result.applied
    assert "5 dead letters of t#0 in [0, 10)" in str(result.refusal)
    assert "--with-replayed" in str(result.refusal)
    assert acts.action(ActionKind.REPLAY, ranges=(("t", Range(10, 20)),)).applied


def test_a_range_whose_dead_letters_were_all_parked_again_is_read_again_and_one_of_which_some_were_is_not(
    acts: Acts,
) -> None:
    first = replay(acts, Selection(batches=frozenset({BatchKey(1, "t", 0)})))
    acts.settle(delivered(send(acts, first), dead=5))
    second = replay(acts, Selection(batches=frozenset({BatchKey(1, "t", 1)})))
    acts.settle(delivered(send(acts, second), dead=4))

    refused = acts.action(ActionKind.REPLAY, ranges=(("t", Range(10, 20)),))
    assert "at least some of the 5 dead letters of t#1 in [10, 20)" in str(refused.refusal)
    assert acts.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),)).applied
    assert {dead_letters.key for dead_letters in chosen(acts)} == {BatchKey(3, second, 0)}


def test_letters_that_were_parked_again_and_then_delivered_are_not_read_again(acts: Acts) -> None:
    acts.settle(delivered(send(acts, replay(acts)), dead=10))
    acts.settle(delivered(send(acts, replay(acts))))

    assert "10 dead letters of" in str(acts.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),)).refusal)


def test_an_acceptance_that_sends_records_again_takes_back_the_replay_of_their_letters(acts: Acts) -> None:
    side = replay(acts)
    action = Action(ActionKind.RESEND_TO_SINK, positions={"t": 10}, from_receipts=True)

    result = acts.ledger.act_under_lease(acts.lease, action, actor="ann", reason="restored")

    assert result.action.taken_back == (side,)
    assert states(acts.ledger) == {"parked": 10}
    assert {dead_letters.key.seq for dead_letters in chosen(acts)} == {0}


def test_a_range_whose_dead_letters_were_replayed_is_read_again_if_a_person_says_so(acts: Acts) -> None:
    acts.settle(delivered(send(acts, replay(acts))))
    assert acts.action(ActionKind.REPLAY, ranges=(("t", Range(0, 20)),), with_replayed=True).applied


def test_a_range_is_read_again_where_rows_replace_rows_by_key(acts: Acts) -> None:
    acts.ledger.declare(acts.lease, {"name": "orders", "sink": {"mode": "upsert"}})
    acts.settle(delivered(send(acts, replay(acts))))
    assert acts.action(ActionKind.REPLAY, ranges=(("t", Range(0, 20)),)).applied
