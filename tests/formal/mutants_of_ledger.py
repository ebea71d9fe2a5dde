"""Mutants of the ledger's locking, loading and storing; tests on SQLite detect them, and one test on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_LEDGER = "tests/integration/ledger"
_HERE = "tests/formal/test_ledger_rules.py"

OF_LEDGER: Sequence[Mutant] = (
    Mutant(
        "the lease is checked without its lock",
        "ledger/store/lease.py",
        "lock_row",
        "sa.select(_L.owner, _L.epoch, _L.ttl_ms, _L.expires_at).where(_L.pipeline == pipeline).with_for_update()",
        "sa.select(_L.owner, _L.epoch, _L.ttl_ms, _L.expires_at).where(_L.pipeline == pipeline)",
        test=f"{_HERE}::test_a_takeover_waits_for_a_command_in_progress",
    ),
    Mutant(
        "a command does not check the lease",
        "ledger/unit_of_work.py",
        "UnitOfWork.__init__",
        "lease_store.check(connection, lease.pipeline, lease.epoch, lease.owner)",
        "lease_store.lock_row(connection, lease.pipeline)",
        test=f"{_LEDGER}/test_lease.py"
        "::test_every_command_of_an_older_epoch_is_refused_and_stores_nothing[sqlite-settle]",
    ),
    Mutant(
        "the outcome of an older attempt is settled",
        "ledger/commands/settle.py",
        "settle",
        "batch is None or batch.attempts != outcome.attempt",
        "batch is None",
        test=f"{_LEDGER}/test_settle.py::test_an_outcome_of_an_attempt_that_is_not_open_is_ignored_and_told[sqlite]",
    ),
    Mutant(
        "the outcome of an older epoch's attempt is settled",
        "ledger/unit_of_work.py",
        "UnitOfWork.batch_in_flight",
        "batch is None or batch.state is not BatchState.IN_FLIGHT or batch.epoch != self.lease.epoch",
        "batch is None or batch.state is not BatchState.IN_FLIGHT",
        test=f"{_HERE}::test_an_outcome_of_an_older_epochs_attempt_is_ignored",
    ),
    Mutant(
        "a restart forgets what was cancelled",
        "ledger/store/batches.py",
        "batch_row",
        "batch.cancelled",
        "False",
        test=f"{_LEDGER}/test_settle.py::test_the_cancellation_watermark_survives_a_takeover[sqlite]",
    ),
    Mutant(
        "a settlement ignores what others have resolved",
        "ledger/store/batches.py",
        "load_some",
        "sa.or_(_BATCH.state.in_([state.value for state in RESOLVED]), _BATCH.cancelled)",
        "_BATCH.cancelled",
        test=f"{_LEDGER}/test_partial_loading.py"
        "::test_the_checkpoint_moves_over_what_other_commands_have_resolved[sqlite]",
    ),
    Mutant(
        "an action is applied behind the back of the run that holds the lease",
        "ledger/commands/apply_or_store.py",
        "apply_or_store",
        "lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=False)",
        "lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=True)",
        test=f"{_HERE}::test_an_action_waits_for_the_run_that_holds_the_lease",
    ),
    Mutant(
        "an approval that is used at this moment can be given and used again",
        "ledger/commands/proposals.py",
        "ProposalCommands.proposal_to_answer",
        "_load_locked(connection, newest.proposal.id)",
        "newest",
        test="tests/integration/ledger/test_proposals.py::"
        "test_a_question_asked_while_its_action_is_carried_out_does_not_open_the_proposal_again[postgresql]",
    ),
    Mutant(
        "a rewind is applied without a fence and a new epoch",
        "ledger/commands/request_action.py",
        "ActionCommands.apply_stored_actions",
        "NEED_COLUMNS if behind_fence else NEED_COLUMNS | NEED_NEW_EPOCH",
        "NEED_COLUMNS | NEED_NEW_EPOCH if behind_fence else NEED_COLUMNS",
        test=f"{_HERE}::test_a_rewind_waits_for_a_fence",
    ),
    Mutant(
        "a generation gets a number that the sink has seen",
        "ledger/commands/reconcile.py",
        "reconcile",
        "work.pipeline_state.generation = max(work.pipeline_state.generation, receipt.key.generation)",
        "pass",
        test=f"{_LEDGER}/test_reconcile.py::test_a_replay_takes_no_number_that_the_sink_has_seen[sqlite]",
    ),
    Mutant(
        "the ledger merges receipts across a gap",
        "ledger/store/receipts.py",
        "merge_batches",
        "batch.range.start <= end",
        "batch.range.start <= end + 10",
        test=f"{_HERE}::test_receipts_on_both_sides_of_a_gap_stay_two",
    ),
    Mutant(
        "the receipts of the newest epoch are not asked for",
        "ledger/queries/sink_state.py",
        "expected_receipts",
        "found.update(BatchKey(known.generation, partition, number) for number in numbers)",
        "known.generation",
        test=f"{_LEDGER}/test_expected_sink_state.py"
        "::test_every_receipt_of_the_newest_epoch_is_expected_below_the_checkpoint_and_beyond[sqlite]",
    ),
    Mutant(
        "the epoch of the fence is not kept",
        "ledger/commands/sink_state.py",
        "store_state",
        '{"sink_epoch": now.epoch, "sink_target": now.target, "sink_location": now.location}',
        '{"sink_target": now.target, "sink_location": now.location}',
        test=f"{_LEDGER}/test_expected_sink_state.py::test_what_was_noted_is_known_once_a_batch_was_begun[sqlite]",
    ),
)
