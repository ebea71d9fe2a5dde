"""Mutants of claims and fences of the sinks, detected by tests on a real PostgreSQL and on real Delta tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_POSTGRES = "tests/integration/connectors/postgres/test_sink.py"
_HOSTILE = "tests/integration/connectors/postgres/test_hostile.py::test_a_value_that_postgres_refuses_costs_its_row"
_BARRIER = "tests/formal/test_sink_rules.py::test_what_waits_inside_a_batch_when_the_fence_rises_never_commits"
_TWO_PHASE = "tests/integration/connectors/two_phase"
_TABLE = f"{_TWO_PHASE}/test_conformance.py::TestNewTable"
_STREAMFORGE = "tests/integration/replication/test_streamforge.py"
_TABLE_FENCE = f"{_TWO_PHASE}/test_fence.py::TestFence"
_TABLE_RESTORE = f"{_TWO_PHASE}/test_restored_target.py::TestRestore"
_LOST_NODE = f"{_TWO_PHASE}/test_receipt_chain.py::TestAnOlderNodeThatIsLost"

OF_SINKS: Sequence[Mutant] = (
    Mutant(
        "postgres: the fence does not wait for whoever holds it",
        "connectors/postgres/fence.py",
        "try_raise",
        "return False",
        "return True",
        test=f"{_POSTGRES}::TestFence::test_it_ends_a_transaction_of_an_older_epoch_that_does_not_end_by_itself",
    ),
    Mutant(
        "postgres: a lane does not hold the fence to its end",
        "connectors/postgres/receipts.py",
        "BookkeepingTables.claim",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch = {{2}}",
        test=_BARRIER,
        text=True,
    ),
    Mutant(
        "postgres: the receipt is committed on its own, before the rows",
        "connectors/postgres/receipt_claim.py",
        "claim_script",
        'f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {settings}; {claim}"',
        'f"BEGIN; SELECT {settings}; {claim}; COMMIT; BEGIN; SELECT {settings}"',
        test=_BARRIER,
    ),
    Mutant(
        "postgres: epochs are compared the wrong way when a lane claims",
        "connectors/postgres/receipts.py",
        "BookkeepingTables.claim",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch >= {{2}} FOR SHARE",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_refuses_whoever_has_an_older_epoch[append]",
        text=True,
    ),
    Mutant(
        "postgres: the fence can be lowered",
        "connectors/postgres/fence.py",
        "fence",
        "refuse_if_fenced(fenced, epoch, bookkeeping.place, context.pipeline)\nif fenced == epoch:\n    return False",
        "if fenced >= epoch:\n    return False",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_is_never_lowered[append]",
    ),
    Mutant(
        "postgres: a claim that finds a receipt delivers all the same",
        "connectors/postgres/receipt_claim.py",
        "begin_with_claim",
        "return False",
        "cursor.executescript('ROLLBACK; BEGIN')\nreturn True",
        test=f"{_POSTGRES}::TestConformance::test_a_second_delivery_finds_the_receipt_and_has_no_effect[append]",
    ),
    Mutant(
        "postgres: what one row's data is too much for fails its batch",
        "connectors/postgres/row_errors.py",
        "",
        "^(22|23|54)",
        "^(22|23)",
        test=f"{_HOSTILE}[JSON that is nested too deep]",
        text=True,
    ),
    Mutant(
        "postgres: a role's own synchronous_commit is left as it is",
        "connectors/postgres/durability.py",
        "",
        "ELSE 'on' END, true)",
        "WHEN 'off' THEN 'off' ELSE 'on' END, true)",
        test="tests/integration/connectors/postgres/test_durability.py::test_a_stricter_setting_stays_as_it_is[off-on]",
        text=True,
    ),
    Mutant(
        "postgres: only rows that are added to a batch are noticed, not those that are swallowed",
        "connectors/postgres/row_count.py",
        "RowCounter.check",
        "IF ckpt_added <> ckpt_sent",
        "IF ckpt_added > ckpt_sent",
        test="tests/integration/connectors/postgres/test_row_count.py"
        "::TestTrigger::test_the_batch_fails_with_both_numbers[a trigger that swallows rows-COPY]",
        text=True,
    ),
    Mutant(
        "postgres: keys are compared as they are sent, not as the target stores them",
        "connectors/postgres/upsert_key.py",
        "KeyColumn.comparable",
        "self.column.as_stored(value)",
        "value",
        test="tests/integration/connectors/postgres/test_upsert_key.py"
        "::test_keys_that_are_one_in_the_target_leave_the_last_record[numeric that rounds-all at once]",
    ),
    Mutant(
        "postgres: a truncated target counts as a rewritten one",
        "connectors/postgres/restored_target.py",
        "find_loss",
        "delivered and (not any(part.size for part in parts.values()))",
        "False",
        test="tests/integration/connectors/postgres/test_restored_target.py::test_a_truncated_target_is_set_back[append-1]",
    ),
    Mutant(
        "postgres: a target that was filled again counts as whole though rows are missing",
        "connectors/postgres/restored_target.py",
        "_describe_missing",
        "wanted <= present",
        "wanted & present",
        test="tests/integration/connectors/postgres/test_restored_target.py"
        "::test_a_truncated_target_into_which_an_older_copy_is_put_back_is_set_back[append-300-id <= 290]",
    ),
    Mutant(
        "postgres: a partition that was filled while it was detached is not looked at",
        "connectors/postgres/origin_tables.py",
        "newly_attached",
        "list(attached.get(item.oid, item.attached)) != list(item.attached)",
        "False",
        test="tests/integration/connectors/postgres/test_late_rows.py"
        "::TestAPartitionThatIsAttachedAgain::test_as_an_heir_is_told",
    ),
    Mutant(
        "postgres: of a trigger only the statement that assigns the cursor is read",
        "connectors/postgres/sql_code.py",
        "TriggerCode.assigning_statements",
        "wanted = {word for number in more for word in found[number].words} - known",
        "wanted = set()",
        test="tests/integration/connectors/postgres/test_cursor_code.py"
        "::TestSequences::test_one_that_a_trigger_uses_is_found[a variable]",
    ),
    Mutant(
        "postgres: a failover that parted before what was read counts as one without loss",
        "connectors/postgres/restored_server.py",
        "_lost_clause",
        "not is_at_or_beyond(lsn, end)",
        "False",
        test="tests/integration/connectors/postgres/test_switchover.py"
        "::test_a_failover_without_the_last_rows_is_told_with_the_place_where_the_timelines_parted",
    ),
    Mutant(
        "postgres: a writer may keep books for a pipeline that is not its own",
        "connectors/postgres/roles.py",
        "SinkRoles._policies",
        "WITH CHECK ({own})",
        "WITH CHECK (true)",
        test="tests/integration/connectors/postgres/test_roles.py::test_no_receipt_letter_replay_or_fence_is_forged",
        text=True,
    ),
    Mutant(
        "postgres: a value that its column would round is rounded",
        "connectors/postgres/exact_values.py",
        "_rounding_conditions",
        "column.length_cast is not None",
        "column.length_cast is False",
        test="tests/integration/connectors/postgres/test_reported_or_equal.py"
        "::test_a_value_that_would_be_rounded_or_cut_becomes_a_dead_letter[numeric(6,2)-1.005-1.00]",
    ),
    Mutant(
        "delta: a day that Python has no value for fails its batch",
        "connectors/delta/stats.py",
        "_bounds",
        "try:\n"
        "    return (stats.min, stats.max) if stats.has_min_max else None\n"
        "except (OverflowError, ValueError):\n"
        "    return None",
        "try:\n    return (stats.min, stats.max) if stats.has_min_max else None\nexcept ArithmeticError:\n    raise",
        test="tests/unit/connectors/delta/test_stats.py::test_a_day_beyond_python_has_none_and_does_no_harm",
    ),
    Mutant(
        "files: a bare quote makes newlines data",
        "connectors/files/record_ends.py",
        "_QuoteScanner._one_by_one",
        "begin or closed == offset - 1",
        "True",
        test="tests/unit/connectors/files/test_record_ends.py::test_only_a_quote_where_a_field_begins_makes_newlines_data",
    ),
    Mutant(
        "audit: sums are not compared with the sink's receipts",
        "core/sink_audit.py",
        "_RangeReceipts._differences_of",
        "sums != item.counts",
        "sums.read != item.counts.read",
        test="tests/unit/core/test_sink_audit.py::"
        "test_changed_counts_are_found_in_a_sum_and_named_where_it_is_of_one_batch",
    ),
    Mutant(
        "audit: an accepted loss excuses every later one",
        "core/sink_audit.py",
        "_RangeReceipts.differences",
        "found = list(self._differences_of(item.without(lost), receipts))",
        "found = []",
        test="tests/unit/core/test_accepted_sink.py::"
        "test_a_receipt_that_is_lost_later_is_missing_though_others_of_its_sum_were_accepted",
    ),
    Mutant(
        "audit: dead letters are believed, not counted",
        "core/sink_audit.py",
        "compare_dead_letters",
        "stored != counted",
        "stored > counted",
        test="tests/unit/core/test_sink_audit.py::test_dead_letters_are_as_many_as_the_receipt_tells",
    ),
    Mutant(
        "delta: the fence is a file alone, and no commit",
        "connectors/delta/fence.py",
        "fence",
        "version.committed_epoch == epoch",
        "epoch",
        test=f"{_TABLE_FENCE}::test_a_commit_prepared_before_the_fence_is_refused[delta-False]",
    ),
    Mutant(
        "fence: epochs are compared the wrong way",
        "connectors/refuse_fenced_run.py",
        "refuse_if_fenced",
        "fenced > epoch",
        "fenced < epoch",
        test=f"{_TABLE}::test_a_fence_refuses_whoever_has_an_older_epoch[delta]",
    ),
    Mutant(
        "delta: a commit does not check the fence",
        "connectors/two_phase/committer.py",
        "TableCommitter._settle_committed",
        "if wave.waiting:\n    version.refuse_unless_current(self._context.epoch)",
        "if wave.waiting:\n    pass",
        test=f"{_TABLE_FENCE}::test_a_stale_epoch_commits_nothing_and_its_files_go[delta]",
    ),
    Mutant(
        "delta: rows are committed without their receipts",
        "connectors/delta/table_version.py",
        "DeltaVersion._commit",
        "{self.layout.epoch_app: epoch, self.layout.receipts_app: head}",
        "{self.layout.epoch_app: epoch}",
        test=f"{_TABLE}::test_a_batch_is_delivered_with_its_receipt[delta]",
    ),
    Mutant(
        "delta: a commit leaves out the receipts before it",
        "connectors/two_phase/receipts.py",
        "ReceiptChain._write",
        "node_document(previous, version, entries, reach or {}, cut, schema, schema_before)",
        "node_document(None, version, entries, reach or {}, cut, schema, schema_before)",
        test=f"{_TABLE}::test_many_batches_go_through_one_writer[delta]",
    ),
    Mutant(
        "delta: a table that was restored is taken for whole",
        "connectors/two_phase/restored_target.py",
        "find_loss",
        "restored is None or committed <= restored",
        "committed",
        test=f"{_TABLE_RESTORE}::test_to_an_older_version_is_told_and_the_lost_batches_are_named[delta-1-lost1]",
    ),
    Mutant(
        "delta: a run goes on in a table that was restored meanwhile",
        "connectors/two_phase/committer.py",
        "TableCommitter._settle_committed",
        "refuse_loss(version, self._chain(version))",
        "self._chain(version)",
        test=f"{_TABLE_RESTORE}::test_between_two_waves_stops_the_run_before_its_next_commit[delta]",
    ),
    Mutant(
        "delta: a fence accepts a restore that nobody has seen",
        "connectors/two_phase/restored_target.py",
        "start_new_chain",
        "found is not None and not accepting",
        "False",
        test=f"{_TABLE_RESTORE}::test_that_comes_between_look_and_fence_is_not_accepted_unseen[delta]",
    ),
    Mutant(
        "delta: newer receipts are forgotten with one that is lost",
        "connectors/two_phase/receipts.py",
        "ReceiptChain.start_new_chain",
        "head == lost",
        "True",
        test=f"{_LOST_NODE}::test_is_cut_off_once_a_person_accepts_and_newer_receipts_stay[unlink-delta]",
    ),
    Mutant(
        "delta: a receipt that is lost is taken for one that counts",
        "connectors/two_phase/receipts.py",
        "ReceiptChain.receipted",
        "epoch < newest and node.contains(key)",
        "node.contains(key)",
        test=f"{_LOST_NODE}::test_takes_no_newer_receipt_with_it[unlink-delta]",
    ),
    Mutant(
        "postgres: a replayed dead letter replaces a row that may be newer",
        "core/replay_content.py",
        "may_overwrite",
        "return not key.is_replay",
        "return True",
        test="tests/integration/replication/test_dead_letters.py::test_a_replay_never_replaces_a_row_that_may_be_newer",
    ),
    Mutant(
        "postgres: a refused batch that was given up is committed with the next one",
        "connectors/postgres/writer.py",
        "PostgresWriter.deliver",
        "if unfinished is not None:\n    self._execute('ROLLBACK')",
        "",
        test=f"{_POSTGRES}::TestConformance::test_a_refused_batch_that_is_given_up_leaves_nothing_with_the_next_one[append]",
    ),
    Mutant(
        "postgres: the rows of a refused batch are taken for those that are in its transaction",
        "connectors/open_batch.py",
        "OpenBatch.is_continued_by",
        "task == self.task and self.numbers.equals(content.rows.column(ROW_NUMBER))",
        "task == self.task",
        test=f"{_POSTGRES}::TestConformance::"
        "test_a_refused_batch_that_comes_with_other_rows_than_the_rest_holds_these[append]",
    ),
    Mutant(
        "postgres: a receipt counts refused rows as delivered",
        "connectors/postgres/writer.py",
        "PostgresWriter._complete",
        "counts != receipt.counts",
        "False",
        test=f"{_POSTGRES}::TestConformance::test_the_others_are_delivered_with_a_dead_letter_of_each[append]",
    ),
    Mutant(
        "a lane gives a refused batch up and leaves its transaction open",
        "spark/lane/deliver.py",
        "Lane._write",
        "self._close_writer()",
        "",
        test="tests/unit/spark/lane/test_refused_rows.py::test_an_error_that_fails_the_batch_ends_its_transaction",
    ),
    Mutant(
        "kafka: rows are committed without their receipt",
        "connectors/kafka/writer.py",
        "KafkaWriter._transaction",
        "producer.produce(self._receipts, value, receipt_key(self._context.ledger, task.key), 0)\n"
        "transactions.commit()",
        "transactions.commit()",
        test=f"{_STREAMFORGE}::test_commit_failure_causes_duplicate",
    ),
    Mutant(
        "kafka: no lane has the transactional id that a fence initialises",
        "connectors/kafka/producers.py",
        "TransactionalProducer.__init__",
        "{'transactional.id': identity, 'message.max.bytes': 1000000000, 'error_cb': self._client_errors}",
        "{'transactional.id': f'{identity}{time.time()}', 'message.max.bytes': 1000000000, 'error_cb': "
        "self._client_errors}",
        test=f"{_STREAMFORGE}::test_scenario_7_rebalance_during_processing",
    ),
    Mutant(
        "kafka: a dead letter that cannot be written is taken for an outage",
        "connectors/kafka/writer.py",
        "KafkaWriter._send_dead_letters",
        "not info.recoverable and info.type is not ErrorType.FENCED",
        "info.type is ErrorType.FENCED",
        test=f"{_STREAMFORGE}::test_scenario_6_dlq_failure",
    ),
)
