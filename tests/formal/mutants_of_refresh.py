"""Mutants of full refreshes: their steps, the staging table, and the transaction that publishes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_CORE = "core/refresh.py"
_SINK = "connectors/postgres/replacing_sink.py"
_UNIT = "tests/unit/core/test_refresh.py"
_RUNS = "tests/integration/replication/test_refresh.py"
_STEPS = f"{_UNIT}::test_a_refresh_is_continued_by_its_own_process_or_once_a_person_has_released_it"
_PUBLISHED = f"{_RUNS}::test_the_sink_publishes_only_what_is_complete_and_only_for_the_newest_epoch"
_CRASHES = "tests/integration/replication/test_refresh_crashes.py"
_KILLED = f"{_CRASHES}::test_readers_see_whole_generations_whatever_is_killed[postgres]"

_RENAMING = "connectors/postgres/renaming_sink.py"
_SWAP = "connectors/postgres/rename_swap.py"
_RENAMES = "tests/integration/replication/test_refresh_by_rename.py"
_SAME = f"{_RENAMES}::test_the_table_is_the_same_for_all_who_use_it"
_KILLED_RENAMES = f"{_CRASHES}::test_readers_see_whole_generations_whatever_is_killed[postgres_renamed]"

_LAKE = "connectors/two_phase/replacement.py"
_STAGED = "connectors/two_phase/staged_refresh.py"
_TABLES = "tests/integration/connectors/two_phase/test_replacement.py"
_REPLACED = f"{_TABLES}::TestPublication::test_one_commit_replaces_all_rows_those_of_other_writers_too"
_WHOLE = f"{_TABLES}::TestPublication::test_what_is_not_complete_is_not_published[delta]"
_ABANDONED = f"{_TABLES}::TestAbandonedRefreshes"

OF_REFRESH: Sequence[Mutant] = (
    Mutant(
        "refresh: the target is emptied in a transaction of its own",
        _SINK,
        "PostgresReplacingSink._replace_rows",
        'cursor.execute(f"DELETE FROM {target.sql}")',
        'cursor.execute(f"DELETE FROM {target.sql}; COMMIT; BEGIN")',
        test=_KILLED,
    ),
    Mutant(
        "refresh: a released one is published although staged rows are lost",
        _SINK,
        "PostgresReplacingSink.is_staged",
        "count_rows(fetch, staging) == rows.count",
        "True",
        test=f"{_RUNS}::test_a_released_refresh_whose_rows_are_lost_is_begun_anew[postgres-None]",
    ),
    Mutant(
        "refresh: a range without a receipt is published",
        _SINK,
        "PostgresReplacingSink._replace_rows",
        "rows.refuse_missing(task, self._pipeline)",
        "None",
        test=_PUBLISHED,
    ),
    Mutant(
        "refresh: lost staged rows are not noticed",
        _SINK,
        "PostgresReplacingSink._replace_rows",
        "rows.refuse_lost(task, count_rows(fetch, staging), self._pipeline)",
        "None",
        test=_PUBLISHED,
    ),
    Mutant(
        "refresh: a run of an older epoch drops the staging table",
        _SINK,
        "PostgresReplacingSink.prepare_staging",
        "fenced == epoch",
        "True",
        test=_PUBLISHED,
    ),
    Mutant(
        "refresh: a replay of dead letters goes on, whose records it reads again",
        "ledger/commands/refresh.py",
        "RefreshCommands.begin_refresh",
        "unfinished_replays(work, [(partition, _ALL)])",
        "()",
        test=f"{_RUNS}::test_a_refresh_cancels_a_replay_that_would_deliver_its_records_twice",
    ),
    Mutant(
        "swap: the old table is dropped in a transaction of its own",
        _SWAP,
        "replacement",
        'f"DROP TABLE {target.sql}"',
        'f"DROP TABLE {target.sql}; COMMIT; BEGIN"',
        test=_KILLED_RENAMES,
    ),
    Mutant(
        "swap: dependents are looked for only when a run begins",
        _RENAMING,
        "PostgresRenamingSink._swap",
        "self._swap_problem(fetch, target)",
        "None",
        test=f"{_RENAMES}::test_a_table_on_which_something_depends_is_refused_with_its_name[a trigger]",
    ),
    Mutant(
        "swap: a table that was altered meanwhile is replaced",
        _RENAMING,
        "PostgresRenamingSink._swap",
        "problem is None and differences",
        "False",
        test=f"{_RENAMES}::"
        "test_a_table_that_is_altered_while_rows_are_staged_is_not_swapped_and_the_next_refresh_follows",
    ),
    Mutant(
        "swap: grants are not carried over, nor compared",
        _RENAMING,
        "PostgresRenamingSink._swap",
        "_execute(client, settings(fetch, target, staging, of_target, of_staging))\n"
        "of_staging = read_definition(fetch, staging.oid)\n"
        "differences = of_target.differences(of_staging)",
        "pass",
        test=_SAME,
    ),
    Mutant(
        "swap: the new table has no statistics",
        _RENAMING,
        "PostgresRenamingSink._replace_rows",
        'cursor.execute(f"ANALYZE {staging.sql}")',
        "None",
        test=_SAME,
    ),
    Mutant(
        "swap: lost staged rows are not noticed",
        _RENAMING,
        "PostgresRenamingSink._replace_rows",
        "rows.refuse_lost(task, count_rows(fetch, staging.sql), self._pipeline)",
        "None",
        test=f"{_RENAMES}::test_rows_that_vanished_from_the_staging_table_are_noticed",
    ),
    Mutant(
        "swap: others write between count and swap",
        _RENAMING,
        "PostgresRenamingSink._replace_rows",
        'self._lock(client, target, "SHARE ROW EXCLUSIVE", WRITERS_WAIT_MS)',
        "None",
        test=f"{_RENAMES}::test_others_cannot_add_rows_between_the_count_and_the_swap",
    ),
    Mutant(
        "swap: readers wait as long as writers",
        _RENAMING,
        "PostgresRenamingSink._replace_rows",
        "READERS_WAIT_MS",
        "WRITERS_WAIT_MS",
        test=f"{_RENAMES}::test_readers_wait_for_short_times_only_until_the_table_is_free",
    ),
    Mutant(
        "swap: the new table is not known to the next run",
        _RENAMING,
        "PostgresRenamingSink._replace_rows",
        "self._store_swap(fetch, bookkeeping, target, staging)",
        "None",
        test=f"{_RENAMES}::test_the_target_keeps_its_identity_until_somebody_else_replaces_it",
    ),
    Mutant(
        "swap: any table of the name counts as the one that was swapped in",
        "connectors/postgres/sink.py",
        "PostgresSink._first_oid",
        "now == oid",
        "True",
        test=f"{_RENAMES}::test_the_target_keeps_its_identity_until_somebody_else_replaces_it",
    ),
    Mutant(
        "swap: a released refresh is continued although the target was altered",
        _RENAMING,
        "PostgresRenamingSink.is_staged",
        "staging is not None and not _definitions_of(fetch, target, staging)[2]",
        "True",
        test=f"{_RENAMES}::test_a_released_refresh_whose_target_was_altered_is_begun_anew",
    ),
    Mutant(
        "refresh: one of another process is continued",
        _CORE,
        "next_step",
        "own or (extent.questioned and is_staged())",
        "True",
        test=_STEPS,
    ),
    Mutant(
        "refresh: a released one is continued although staged rows are lost",
        _CORE,
        "next_step",
        "extent.questioned and is_staged()",
        "extent.questioned",
        test=_STEPS,
    ),
    Mutant(
        "refresh: a run refreshes without end",
        _CORE,
        "next_step",
        "RefreshStep.NOTHING if begun else RefreshStep.BEGIN",
        "RefreshStep.BEGIN",
        test=f"{_UNIT}::test_each_run_begins_one_refresh",
    ),
    Mutant(
        "refresh: the generation of the one before is used again",
        _CORE,
        "begin",
        "partition.next_seq == 0",
        "True",
        test=f"{_UNIT}::test_a_new_refresh_supersedes_the_batches_of_the_old_one_from_the_first_page_on",
    ),
    Mutant(
        "refresh: it is published before all rows have a verdict",
        _CORE,
        "publication_due",
        "partition.committed == partition.planned_end == extent.rows_end",
        "partition.planned_end == extent.rows_end",
        test=f"{_UNIT}::test_the_publishing_batch_is_due_once_every_row_has_a_verdict",
    ),
    Mutant(
        "refresh: pages that were skipped count as staged",
        _CORE,
        "",
        "frozenset({Verdict.DELIVERED, Verdict.REJECTED})",
        "frozenset(Verdict)",
        test=f"{_UNIT}::test_pages_that_are_skipped_or_have_no_receipt_are_missing",
    ),
    Mutant(
        "refresh: nobody is asked about a shrunken source",
        _CORE,
        "ReplaceLimits.refusal_reason",
        "staged and staged < present * (1 - self.max_shrink)",
        "False",
        test=f"{_UNIT}::test_a_refresh_that_lacks_too_many_rows_waits",
    ),
    Mutant(
        "refresh: rows that others added after the count are removed unseen, postgres",
        _SINK,
        "PostgresReplacingSink._replace_rows",
        "limits is not None and limits.refusal_reason(rows.count, cursor.rowcount) is not None",
        "False",
        test=_PUBLISHED,
    ),
    Mutant(
        "refresh: rows that others added after the count are removed unseen, tables",
        _LAKE,
        "ReplacesTable._commit",
        "limits is not None and limits.refusal_reason(refresh.rows, version.row_count()) is not None",
        "False",
        test=f"{_TABLES}::TestLimits::test_a_table_that_grows_between_count_and_commit_is_counted_again[iceberg]",
    ),
    Mutant(
        "refresh: staged batches are added to the table at once",
        "connectors/two_phase/committer.py",
        "TableCommitter._only_stages",
        "self._refreshes and not key.is_side_partition",
        "False",
        test=f"{_REPLACED}[delta]",
    ),
    Mutant(
        "refresh: old rows of a Delta table stay",
        "connectors/delta/table.py",
        "commit",
        '"overwrite" if replacing else "append"',
        '"append"',
        test=f"{_REPLACED}[delta]",
    ),
    Mutant(
        "refresh: old rows of an Iceberg table stay",
        "connectors/iceberg/table_version.py",
        "IcebergVersion.replace",
        "self._files()",
        "[]",
        test=f"{_REPLACED}[iceberg]",
    ),
    Mutant(
        "refresh: a range of a table without a receipt is published",
        _STAGED,
        "StagedRefresh.defect",
        "missing = missing_ranges([entry.receipt for entry in self.entries], rows_end)",
        "missing = []",
        test=_WHOLE,
    ),
    Mutant(
        "refresh: lost files are not noticed",
        _STAGED,
        "StagedRefresh.defect",
        "damage is not None",
        "False",
        test=_WHOLE,
    ),
    Mutant(
        "refresh: an older epoch publishes to a table",
        _LAKE,
        "ReplacesTable._publish",
        "version.refuse_unless_current(epoch)",
        "None",
        test=f"{_TABLES}::TestFence::test_a_fence_between_the_checks_and_the_commit_stops_the_commit[delta]",
    ),
    Mutant(
        "refresh: an older epoch removes files",
        _LAKE,
        "ReplacesTable.prepare_staging",
        "version.refuse_unless_current(epoch)",
        "None",
        test=f"{_TABLES}::TestFence::test_an_older_epoch_publishes_and_removes_nothing[delta]",
    ),
    Mutant(
        "refresh: files are removed while a request may still publish them",
        _LAKE,
        "ReplacesTable.prepare_staging",
        "version.commit([], epoch, version.head, note)",
        "True",
        test=f"{_ABANDONED}::test_a_request_in_transit_publishes_nothing_that_was_removed[iceberg]",
    ),
    Mutant(
        "refresh: files of published refreshes are removed",
        _STAGED,
        "abandoned_batches",
        "entry.receipt.verdict is not Verdict.VOID",
        "False",
        test=f"{_ABANDONED}::test_files_that_were_staged_are_removed_by_the_next_refresh_and_no_others[delta]",
    ),
    Mutant(
        "refresh: what was skipped counts as published",
        _STAGED,
        "abandoned_batches",
        "entry.receipt.verdict is not Verdict.VOID",
        "True",
        test=f"{_TABLES}::TestPublication::test_a_skipped_publication_has_a_receipt_and_changes_no_row[delta]",
    ),
    Mutant(
        "refresh: files are removed that the ledger knows as published",
        _STAGED,
        "abandoned_batches",
        "own in skipped or (abandoned_from is not None and own >= abandoned_from)",
        "True",
        test=f"{_ABANDONED}::test_files_of_a_refresh_that_the_ledger_knows_as_published_stay[delta]",
    ),
    Mutant(
        "refresh: a restored table is replaced",
        _LAKE,
        "ReplacesTable._publish",
        "refuse_loss(version, receipts)",
        "None",
        test=f"{_TABLES}::TestOtherCommits::test_a_restored_table_is_not_replaced[delta]",
    ),
    Mutant(
        "refresh: files of a skipped refresh stay",
        _CORE,
        "RefreshExtent.after",
        "skipped or is_unpublished(partition, ended)",
        "is_unpublished(partition, ended)",
        test=f"{_UNIT}::test_a_refresh_names_the_generations_before_it_that_were_not_published",
    ),
)
