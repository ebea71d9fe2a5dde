"""Mutants of schema changes: detection, waiting, the receipt of a change, and the columns that lanes read."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_CORE = "core/schema_change.py"
_RUN = "replication/run/schema_versions.py"
_UNIT = "tests/unit/core/test_schema_change.py"
_RUNS = "tests/integration/replication/test_schema_changes.py"
_WAITING = f"{_UNIT}::test_batches_without_a_verdict_are_read_without_a_dropped_column_before_a_new_one_begins"
_RESTORED = (
    f"{_UNIT}::test_a_refused_column_that_gets_another_name_and_the_targets_type_at_once_is_renamed_and_read"
    "[int-False-follow-None]"
)
_CRASHED = f"{_RUNS}::test_a_crash_between_the_receipt_and_the_ledger_changes_the_target_once"

OF_SCHEMA_CHANGE: Sequence[Mutant] = (
    Mutant(
        "schema: columns are looked at before rows are found",
        "replication/run/run_planning.py",
        "RunPlanning.plan",
        "found = planner.plan(run.known_files.read()) if planner.budget > 0 else None\n"
        "may_plan = self.schema is None or self.schema.follow()",
        "may_plan = self.schema is None or self.schema.follow()\n"
        "found = planner.plan(run.known_files.read()) if planner.budget > 0 else None",
        test=f"{_RUNS}::test_a_column_that_appears_while_a_run_plans_is_read_with_the_rows_that_have_it",
    ),
    Mutant(
        "schema: a lane takes a column for another of its name and type",
        "connectors/postgres/columns_version.py",
        "refuse_other_columns",
        "now.get(name) != column",
        "name not in now or now[name][1] != column[1]",
        test=f"{_RUNS}::test_columns_that_exchange_their_names_before_a_lane_reads_are_not_taken_for_each_other",
    ),
    Mutant(
        "schema: a run of an older epoch changes the target",
        "connectors/postgres/receipts.py",
        "BookkeepingTables.claim_schema_version",
        "AND epoch = {{2}}::bigint FOR SHARE",
        "AND {{2}}::bigint IS NOT NULL FOR SHARE",
        test=f"{_RUNS}::test_a_run_that_was_fenced_changes_nothing_and_a_version_is_applied_once",
        text=True,
    ),
    Mutant(
        "schema: a refused column that gets back its type under another name needs a key for types",
        _CORE,
        "_keys",
        "before is not None and after is not None and follows and before.gets_back_type(after.type)",
        "False",
        test=_RESTORED,
    ),
    Mutant(
        "schema: a refused column that gets back its type under another name stays refused",
        "core/next_schema_version.py",
        "_rename",
        "old.gets_back_type(after.type)",
        "False",
        test=_RESTORED,
    ),
    Mutant(
        "schema: versions that only the sink has are not read",
        _RUN,
        "SchemaVersions._load",
        "len(known) + 1 in stored",
        "False",
        test=_CRASHED,
    ),
    Mutant(
        "schema: a version is recorded before the target is changed",
        _RUN,
        "SchemaVersions._begin",
        "self._sink.apply_schema_version(run.epoch, version, steps)\n"
        "run.ledger.record_schema_version(run.lease, version)",
        "run.ledger.record_schema_version(run.lease, version)\n"
        "self._sink.apply_schema_version(run.epoch, version, steps)",
        test=_CRASHED,
    ),
    Mutant(
        "schema: a new column does not wait for planned batches",
        _CORE,
        "decide",
        "unresolved and part.kind in CAN_WAIT and reads_new(part, policy, use)",
        "False",
        test=_WAITING,
    ),
    Mutant(
        "schema: a dropped column waits for batches that cannot be read any more",
        _CORE,
        "decide",
        "waiting and not applied",
        "waiting",
        test=_WAITING,
    ),
    Mutant(
        "schema: a column that is no longer refused does not wait for planned batches",
        _CORE,
        "decide",
        "part.kind in CAN_WAIT",
        "part.kind == 'new_column'",
        test=f"{_UNIT}::test_an_accepted_type_is_read_after_planned_batches_whatever_the_policy_says_about_new_columns",
    ),
    Mutant(
        "schema: a version begins while a lane that was sent at most once may live",
        _RUN,
        "SchemaVersions._change",
        "self._refuse_beside_unconfirmed(current)",
        "",
        test=f"{_RUNS}::test_a_lane_of_a_lost_wave_that_was_sent_at_most_once_does_not_write_into_columns_of_another_meaning",
    ),
    Mutant(
        "schema: the target's column is not widened",
        "connectors/postgres/schema_changes.py",
        "_widen",
        "can_store(column.exact_type_sql, kind)",
        "True",
        test=f"{_RUNS}::test_every_change_that_the_policy_allows_reaches_the_target_and_splits_the_rows_at_its_position",
    ),
    Mutant(
        "schema: another type counts as wider",
        "core/column_change.py",
        "find_changes",
        "ChangeKind.WIDER if is_wider(name, old.type, new.type) else ChangeKind.OTHER_TYPE",
        "ChangeKind.WIDER",
        test=f"{_UNIT}::test_kinds_of_changes_follow_from_names_and_numbers",
    ),
    Mutant(
        "schema: a discarded column is read",
        "core/next_schema_version.py",
        "_add",
        "not reads_new(change, policy, use)",
        "False",
        test=f"{_RUNS}::test_a_discarded_column_is_not_read_and_the_policy_can_be_loosened_later",
    ),
    Mutant(
        "schema: rows with a value in a refused column are delivered",
        "spark/transform/apply.py",
        "apply",
        "refused_column_checks(shape)",
        "[]",
        test="tests/integration/replication/test_refused_columns.py"
        "::test_rows_with_a_new_column_are_dead_letters_until_the_policy_admits_it",
    ),
    Mutant(
        "schema: an accepted type is left out, since new columns are discarded",
        "core/next_schema_version.py",
        "reads_new",
        "was_read or policy.of(change.name).new_column != 'discard'",
        "policy.of(change.name).new_column != 'discard'",
        test=f"{_UNIT}::test_an_accepted_type_is_read_after_planned_batches_whatever_the_policy_says_about_new_columns",
    ),
    Mutant(
        "schema: a column that was added again is refused for its type",
        "core/schema_version.py",
        "VersionColumn.refused_by",
        "self.kept and not self.added_again",
        "self.kept",
        test=f"{_UNIT}::test_a_dropped_column_that_is_added_again_is_refused_until_the_policy_admits_new_columns",
    ),
    Mutant(
        "schema: a new name is judged by the policy of the old one",
        _CORE,
        "_freeze_reasons",
        "new_name if key == ChangeKind.NEW else change.name",
        "change.name",
        test=f"{_UNIT}::test_a_column_of_a_new_name_needs_a_policy_of_this_name_that_admits_it",
    ),
    Mutant(
        "schema: a rename is not seen if the old name was given again",
        "core/column_change.py",
        "find_changes",
        "new is None or new.number not in numbers",
        "new is None",
        test=f"{_UNIT}::test_a_column_is_renamed_even_if_a_new_one_has_its_old_name",
    ),
)
