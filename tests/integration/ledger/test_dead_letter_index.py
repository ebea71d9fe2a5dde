"""The dead letter index on both databases: states, the receipts of replays, and a lost ledger."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters, DeadLetterState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.core.replay_content import LostReplays, Replay
from airflow_provider_ckpt.core.replayable_dead_letters import Selection, select
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, receipt_of

TYPES = {"Sink": 3, "Serialization": 2}


def parked(driver: LedgerDriver) -> list[Receipt]:
    """Two batches of ten, each with five dead letters."""
    receipts = []
    for batch in driver.send(10, 20):
        outcome = delivered(batch, dead=5, dead_letters=TYPES)
        driver.settle(outcome)
        assert outcome.receipt is not None
        receipts.append(outcome.receipt)
    return receipts


def chosen(driver: LedgerDriver, selection: Selection | None = None) -> tuple[DeadLetters, ...]:
    """Return the dead letters that a selection selects now."""
    index = driver.ledger.dead_letter_index("orders")
    return tuple(select(index.entries, selection or Selection(), index.rereads))


def test_many_refreshes_make_old_dead_letters_obsolete_as_one_range(driver: LedgerDriver) -> None:
    assert len(chosen(driver)) == 4
    for _ in range(3):
        driver.plan(30)
        driver.ledger.begin_refresh(
            driver.lease, "t", RefreshExtent(30, "s", {}), now=driver.now, reason="each run refreshes"
        )

    assert (len(driver.ledger.dead_letter_index("orders").rereads), chosen(driver)) == (1, ())


def states(ledger: Ledger) -> dict[str, int]:
    """Return the number of dead letters in each state."""
    counts: Counter[str] = Counter()
    for entry in ledger.dead_letter_index("orders").entries:
        counts[entry.state.value] += entry.dead_letters.records
    return dict(counts)


def replay(driver: LedgerDriver, selection: Selection | None = None) -> str:
    """Ask for a replay, and plan it as one batch; its side partition."""
    before = set(driver.ledger.partitions("orders"))
    result = driver.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=chosen(driver, selection))
    assert result.refusal is None
    (side,) = set(driver.ledger.partitions("orders")) - before
    return side


def send(driver: LedgerDriver, side: str) -> Batch:
    """Begin all of a replay as one batch."""
    (batch,) = driver.send(driver.partition(side).limit or 0, name=side)
    return batch


@pytest.fixture
def driver(ledger: Ledger) -> LedgerDriver:
    """Pipeline ``orders`` with ten dead letters."""
    made = LedgerDriver(ledger).start("t")
    parked(made)
    return made


def test_a_replay_takes_its_letters_and_its_receipt_says_what_became_of_them(driver: LedgerDriver) -> None:
    side = replay(driver, Selection(types=frozenset({"Sink"})))
    assert (side, driver.partition(side).limit) == ("dlq:2:t", 6)
    assert states(driver.ledger) == {"replaying": 6, "parked": 4}

    driver.settle(delivered(send(driver, side), dead=2, dead_letters={"Sink": 2}))

    assert states(driver.ledger) == {"replayed": 6, "parked": 4, "parked_again": 2}
    (again,) = [e for e in driver.ledger.dead_letter_index("orders").entries if e.state is DeadLetterState.PARKED_AGAIN]
    assert (again.dead_letters.key, again.replays, again.range) == (BatchKey(2, side, 0), 1, Range(0, 20))
    assert driver.partition(side).committed == 6
    assert driver.ledger.status("orders")["dead_letters"] == {"Serialization": 4, "Sink": 2}
    assert driver.ledger.audit("orders")["violations"] == []


def test_of_two_replays_of_one_selection_the_second_finds_nothing(driver: LedgerDriver) -> None:
    dead_letters = chosen(driver)

    first = driver.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)
    second = driver.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)
    overlapping = driver.action(ActionKind.DISCARD_DEAD_LETTERS, dead_letters=dead_letters)

    assert first.applied
    assert [second.applied, overlapping.applied] == [False, False]
    assert "parked any more" in (second.refusal or "")
    assert [name for name in driver.ledger.partitions("orders") if name != "t"] == ["dlq:2:t"]


def test_a_batch_of_a_replay_decides_only_about_its_own_letters(driver: LedgerDriver) -> None:
    side = replay(driver)
    first, second = driver.send(4, 10, name=side)

    driver.settle(delivered(first))
    assert states(driver.ledger) == {"replayed": 4, "replaying": 6}
    driver.settle(delivered(second))

    assert states(driver.ledger) == {"replayed": 10}
    assert driver.ledger.audit("orders")["violations"] == []


@pytest.mark.parametrize("started", [True, False])
def test_a_replay_that_is_let_go_leaves_its_letters_as_they_were(driver: LedgerDriver, started: bool) -> None:
    side = replay(driver, Selection(stop_at=3))
    (batch,) = driver.plan(3, name=side)
    if started:
        (open_one,) = driver.begin([batch])
        driver.again().reconcile(receipt_of(open_one, Verdict.VOID))
    else:
        driver.action(ActionKind.SKIP, batch)

    assert states(driver.ledger) == {"parked": 10}
    assert sum(dead_letters.records for dead_letters in chosen(driver)) == 10


def test_sent_at_most_once_they_are_done(driver: LedgerDriver) -> None:
    side = replay(driver)
    driver.begin(driver.plan(10, name=side), at_most_once=True)

    assert states(driver.ledger) == {"replayed": 10}


def test_what_a_rewind_reads_again_is_neither_replayed_nor_discarded(driver: LedgerDriver) -> None:
    dead_letters = chosen(driver)
    driver.action(ActionKind.REWIND, positions={"t": 10})

    assert {item.key.seq for item in chosen(driver)} == {0}
    result = driver.action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=dead_letters)

    assert (result.applied, states(driver.ledger)) == (True, {"replaying": 5, "parked": 5})


def test_what_a_replayed_range_read_again_is_not_replayed_even_after_collection(driver: LedgerDriver) -> None:
    driver.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    driver.deliver(10, name="replay:2:t")
    assert {item.key.seq for item in chosen(driver)} == {1}
    driver.wait(days=90)
    gone = driver.ledger.garbage_collect("orders", keep=timedelta(days=1), actor="ann", now=driver.now)

    assert gone["side_partitions"] == 1
    assert {item.key.seq for item in chosen(driver)} == {1}


def test_types_are_learned_once_and_only_while_nothing_was_decided(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    (batch,) = driver.send(10)
    driver.again().reconcile(receipt_of(batch, dead=5))
    source = AttemptKey(batch.key, 1, 1)

    ledger.set_error_types("orders", {source: {"Sink": 4}})
    assert [entry.dead_letters.error_type for entry in ledger.dead_letter_index("orders").entries] == ["unknown"]
    ledger.set_error_types("orders", {source: TYPES})
    ledger.set_error_types("orders", {source: {"Io": 5}})

    found = [(e.dead_letters.error_type, e.dead_letters.records) for e in ledger.dead_letter_index("orders").entries]
    assert found == [("Serialization", 2), ("Sink", 3)]


def test_a_lost_ledger_is_told_by_the_sink_what_was_replayed(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
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

    ledger.reconcile(driver.lease, receipts, now=driver.now, lost_replays=known)

    assert states(ledger) == {"parked": 3, "replayed": 3}
    assert ledger.unknown_replays("orders", names) == []
    assert [driver.partition(name).committed for name in names] == [2, 1]
    assert replay(driver) == "dlq:5:t"
    assert ledger.audit("orders")["violations"] == []


def test_a_collected_replay_is_not_taken_for_a_forgotten_one(driver: LedgerDriver) -> None:
    side = replay(driver)
    driver.settle(delivered(send(driver, side)))
    driver.wait(days=90)

    gone = driver.ledger.garbage_collect("orders", keep=timedelta(days=1), actor="ann", now=driver.now)

    assert gone["side_partitions"] == 1
    assert driver.ledger.unknown_replays("orders", {side: 2}) == []
    assert states(driver.ledger) == {"replayed": 10}


def test_an_older_version_is_not_left_with_what_it_would_get_wrong(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        parked(driver)
        side = replay(driver, Selection(stop_at=1))
        with pytest.raises(LedgerStateError, match="has dead letters left to replay"):
            migrate.downgrade(empty_url, "0002")
        driver.settle(delivered(send(driver, side)))
        with pytest.raises(LedgerStateError, match="and others were not"):
            migrate.downgrade(empty_url, "0002")
        driver.settle(delivered(send(driver, replay(driver))))
        ledger.release(driver.lease)
    migrate.downgrade(empty_url, "0002")
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        assert states(ledger) == {"replayed": 10}


def test_an_index_that_was_wholly_decided_goes_down_and_up_again(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        parked(driver)
        driver.action(
            ActionKind.DISCARD_DEAD_LETTERS, dead_letters=chosen(driver, Selection(types=frozenset({"Sink"})))
        )
        before = [(e.dead_letters, e.state, e.at) for e in ledger.dead_letter_index("orders").entries]
        ledger.release(driver.lease)
    migrate.downgrade(empty_url, "0002")
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        assert [(e.dead_letters, e.state, e.at) for e in ledger.dead_letter_index("orders").entries] == before
        assert states(ledger) == {"discarded": 6, "parked": 4}
        with ledger._engine.connect() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(tables.dead_letter)).scalar_one() == 4


@pytest.mark.parametrize("far", ["asked for", "planned", "planned in part", "held"])
def test_a_replay_that_waits_is_taken_back_by_a_rewind_that_reads_its_records_again(
    driver: LedgerDriver, far: str
) -> None:
    side = replay(driver)
    if far != "asked for":
        batches = driver.plan(*((4,) if far == "planned in part" else (4, 10)), name=side)
        if far == "held":
            driver.action(ActionKind.HOLD, batches[0])

    result = driver.action(ActionKind.REWIND, positions={"t": 0})

    assert result.action.cancelled_replays == (side,)
    assert (driver.partition(side).committed, driver.partition(side).blocking) == (10, {})
    assert states(driver.ledger) == {"parked": 10}
    assert chosen(driver) == ()
    assert driver.ledger.audit("orders")["violations"] == []


def test_an_attempt_of_a_replay_that_a_rewind_takes_back_is_ended_by_a_receipt(driver: LedgerDriver) -> None:
    side = replay(driver)
    batch = send(driver, side)
    driver.again().reconcile()
    driver.action(ActionKind.REWIND, positions={"t": 10})
    (planned,) = driver.partition(side).blocking.values()
    assert (planned.instruction, states(driver.ledger)) == (Instruction.VOID, {"replaying": 10})

    (void,) = driver.begin([planned])
    receipt = receipt_of(void, Verdict.VOID, epoch=driver.lease.epoch)
    driver.settle(Outcome(void.key, void.attempts, AttemptOutcome.VOID, receipt))

    assert batch.key == void.key
    assert states(driver.ledger) == {"parked": 10}
    assert {dead_letters.key.seq for dead_letters in chosen(driver)} == {0}


def test_a_replay_of_records_before_a_rewind_goes_on(driver: LedgerDriver) -> None:
    side = replay(driver, Selection(batches=frozenset({BatchKey(1, "t", 0)})))

    assert driver.action(ActionKind.REWIND, positions={"t": 10}).action.cancelled_replays == ()

    driver.settle(delivered(send(driver, side)))
    assert states(driver.ledger) == {"replayed": 5, "parked": 5}


def test_a_rewind_that_cannot_take_a_replay_back_changes_nothing(driver: LedgerDriver) -> None:
    side = replay(driver)
    driver.action(ActionKind.DRAIN)

    result = driver.action(ActionKind.REWIND, positions={"t": 0})

    assert f"{side} replays dead letters that are to be read again" in str(result.refusal)
    assert (driver.partition().generation, states(driver.ledger)) == (1, {"replaying": 10})
    driver.action(ActionKind.RESUME)
    assert driver.action(ActionKind.REWIND, positions={"t": 0}).applied


@pytest.mark.parametrize("span", [Range(0, 10), Range(5, 6), Range(9, 20), Range(0, 20)])
@pytest.mark.parametrize("sent", [False, True])
def test_a_range_whose_dead_letters_a_replay_delivers_is_not_read_again(
    driver: LedgerDriver, span: Range, sent: bool
) -> None:
    side = replay(driver, Selection(batches=frozenset({BatchKey(1, "t", 0)})))
    if sent:
        driver.settle(delivered(send(driver, side)))

    result = driver.action(ActionKind.REPLAY, ranges=(("t", span),))

    assert not result.applied
    assert "5 dead letters of t#0 in [0, 10)" in str(result.refusal)
    assert "--with-replayed" in str(result.refusal)
    assert driver.action(ActionKind.REPLAY, ranges=(("t", Range(10, 20)),)).applied


def test_a_range_whose_dead_letters_were_all_parked_again_is_read_again_and_one_of_which_some_were_is_not(
    driver: LedgerDriver,
) -> None:
    first = replay(driver, Selection(batches=frozenset({BatchKey(1, "t", 0)})))
    driver.settle(delivered(send(driver, first), dead=5))
    second = replay(driver, Selection(batches=frozenset({BatchKey(1, "t", 1)})))
    driver.settle(delivered(send(driver, second), dead=4))

    refused = driver.action(ActionKind.REPLAY, ranges=(("t", Range(10, 20)),))
    assert "at least some of the 5 dead letters of t#1 in [10, 20)" in str(refused.refusal)
    assert driver.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),)).applied
    assert {dead_letters.key for dead_letters in chosen(driver)} == {BatchKey(3, second, 0)}


def test_letters_that_were_parked_again_and_then_delivered_are_not_read_again(driver: LedgerDriver) -> None:
    driver.settle(delivered(send(driver, replay(driver)), dead=10))
    driver.settle(delivered(send(driver, replay(driver))))

    assert "10 dead letters of" in str(driver.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),)).refusal)


def test_an_acceptance_that_sends_records_again_takes_back_the_replay_of_their_letters(driver: LedgerDriver) -> None:
    side = replay(driver)
    action = Action(ActionKind.RESEND_TO_SINK, positions={"t": 10}, from_receipts=True)

    result = driver.ledger.act_under_lease(driver.lease, action, actor="ann", reason="restored")

    assert result.action.cancelled_replays == (side,)
    assert states(driver.ledger) == {"parked": 10}
    assert {dead_letters.key.seq for dead_letters in chosen(driver)} == {0}


def test_a_range_whose_dead_letters_were_replayed_is_read_again_if_a_person_says_so(driver: LedgerDriver) -> None:
    driver.settle(delivered(send(driver, replay(driver))))
    assert driver.action(ActionKind.REPLAY, ranges=(("t", Range(0, 20)),), with_replayed=True).applied


def test_a_range_is_read_again_where_rows_replace_rows_by_key(driver: LedgerDriver) -> None:
    driver.ledger.declare(driver.lease, {"name": "orders", "sink": {"mode": "upsert"}})
    driver.settle(delivered(send(driver, replay(driver))))
    assert driver.action(ActionKind.REPLAY, ranges=(("t", Range(0, 20)),)).applied
