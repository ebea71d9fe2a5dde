"""Mutants of the delivery policy and the dead letter stores; most are detected by tests without services."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_BOXES = "tests/unit/connectors/test_dead_letter_store.py"
_KEYS = "tests/integration/replication/test_policy_keys.py"
_ELSEWHERE = "tests/integration/replication/test_dead_letter_store.py"

OF_POLICY: Sequence[Mutant] = (
    Mutant(
        "a batch is claimed whose dead letters are not stored",
        "connectors/dead_letter_store.py",
        "WriterWithDeadLetterStore.deliver",
        "store_dead_letters(store, dead_letters[first:], task, self._queue, refusal=CkptError)",
        "",
        test=f"{_BOXES}::test_letters_are_kept_before_the_claim_and_the_sink_gets_their_number",
    ),
    Mutant(
        "a dead letter that cannot be stored is dropped after the last try",
        "connectors/dead_letter_retries.py",
        "store_dead_letters",
        "return store()",
        "return store() if retries < queue.max_dlq_retries else None",
        test=f"{_BOXES}::test_one_that_cannot_be_kept_at_all_halts_and_nothing_is_claimed",
    ),
    Mutant(
        "what the sink refuses has no dead letter in another store",
        "connectors/dead_letter_store.py",
        "WriterWithDeadLetterStore.deliver",
        "first = stored if latest is task else 0",
        "first = len(dead_letters) if latest is task else 0",
        test=f"{_BOXES}::test_what_the_sink_refuses_is_kept_too_and_the_rest_is_claimed_after_that",
    ),
    Mutant(
        "dead letters of attempts that came to nothing are found",
        "connectors/postgres/dead_letter_store.py",
        "PostgresDeadLetterStore.dead_letters",
        "AND seq = {{4}}::bigint AND attempt = {{5}}::int AND epoch = {{6}}::bigint",
        "AND seq = {{4}}::bigint AND {{5}}::int + {{6}}::bigint > 0",
        test=f"{_ELSEWHERE}::test_what_an_attempt_left_that_came_to_nothing_does_not_count[postgres]",
        text=True,
    ),
    Mutant(
        "the cadence counts what does not move the checkpoint",
        "core/settle_cadence.py",
        "SettleCadence.due",
        "passable >= self.max_batches or (passable >= self.min_batches and seconds >= self.min_interval)",
        "waiting >= self.max_batches or (waiting >= self.min_batches and seconds >= self.min_interval)",
        test="tests/unit/core/test_settle_cadence.py::test_what_the_checkpoint_could_not_move_by_does_not_make_it_due",
    ),
    Mutant(
        "a wave is settled at its end alone",
        "replication/run/settle.py",
        "WaveSettlement.settle_if_due",
        "self._reads_receipts and started >= self._next_check_at",
        "False",
        test=f"{_KEYS}::test_the_checkpoint_moves_while_a_wave_runs[cadence]",
    ),
    Mutant(
        "what was settled in mid-wave loses its dead letters' types",
        "replication/run/settle.py",
        "WaveSettlement.settle",
        "if types:\n    self._run.ledger.set_error_types(self._pipeline.name, types)",
        "if False:\n    self._run.ledger.set_error_types(self._pipeline.name, types)",
        test=f"{_KEYS}::test_the_checkpoint_moves_while_a_wave_runs[cadence]",
    ),
    Mutant(
        "Spark executes a task once more, and at most once sends it again",
        "spark/lane/deliver.py",
        "Lane.__init__",
        "self._pipeline.delivery == 'at_most_once' and is_task_retry()",
        "False",
        test="tests/unit/spark/dead_letters/test_error_policy.py::test_a_task_that_spark_executes_once_more_sends_nothing_at_most_once",
    ),
    Mutant(
        "at most once an outage costs all that follows",
        "replication/run/wave_loop.py",
        "WaveLoop._settle",
        "if self._at_most_once:\n    self._check_at_most_once(outcomes)",
        "if self._at_most_once:\n    pass",
        test=f"{_KEYS}::test_at_most_once_an_outage_costs_what_was_being_sent_and_nothing_that_follows",
    ),
    Mutant(
        "a pipeline skips a record at whose error it has to halt",
        "core/error_policy.py",
        "choose_action",
        "chosen in _DROPS",
        "chosen is ErrorAction.DEAD_LETTER",
        test="tests/unit/core/test_retry_policy.py::test_no_override_turns_a_halt_into_a_drop_of_a_record",
    ),
    Mutant(
        "a whole batch is dropped for one record that nobody could identify",
        "core/failed_attempt.py",
        "decide",
        "action is ErrorAction.SKIP_AND_LOG and (not about_records)",
        "action is ErrorAction.SKIP_AND_LOG",
        test="tests/unit/core/test_retry_policy.py::test_a_batch_is_not_let_go_for_a_record_that_nobody_could_tell",
    ),
)
