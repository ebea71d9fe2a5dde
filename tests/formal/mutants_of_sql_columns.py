"""Mutants of the code that changes columns of MySQL, MariaDB and SQLite tables, detected on MariaDB and SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_CHANGES = "connectors/sql/schema_changes.py"
_COLUMNS = "connectors/sql/column_changes.py"
_TESTS = "tests/integration/connectors/sql/test_schema_changes.py"
_KILLED = f"{_TESTS}::TestOnce::test_a_change_whose_process_was_killed_at_the_statement_is_made_once[mariadb-True]"
_WIDENED = f"{_TESTS}::TestWiderType::test_mariadb_gets_it_without_loss"
_REFUSED = f"{_TESTS}::TestWiderType::test_a_type_that_would_lose_values_is_refused_with_the_column_and_the_remedy"

OF_SQL_COLUMNS: Sequence[Mutant] = (
    Mutant(
        "sql columns: a run of an older epoch changes the table",
        _CHANGES,
        "TargetColumns.apply",
        "self._refuse_unless_current(connection, bookkeeping)",
        "",
        test=f"{_TESTS}::TestFence::test_a_stale_run_changes_nothing[sqlite]",
    ),
    Mutant(
        "sql columns: a version that has a receipt is applied again",
        _CHANGES,
        "TargetColumns._refuse_again",
        "any(found.partition == version.partition and found.number == version.number for found in known)",
        "False",
        test=f"{_TESTS}::TestOnce::test_a_version_is_applied_once[mariadb]",
    ),
    Mutant(
        "sql columns: a change begins beside one without a receipt",
        _CHANGES,
        "TargetColumns._refuse_again",
        "any(found.partition == version.partition for found in begun)",
        "False",
        test=f"{_TESTS}::TestOnce::test_no_change_begins_beside_one_without_a_receipt",
    ),
    Mutant(
        "sql columns: a run that takes over leaves begun changes",
        "connectors/sql/sink.py",
        "SqlSink.fence",
        "columns.finish()",
        "None",
        test=_KILLED,
    ),
    Mutant(
        "sql columns: a change that was made is made again",
        _CHANGES,
        "TargetColumns._finish",
        "state_of(table, begun.names) == [list(column) for column in begun.before]",
        "True",
        test=_KILLED,
    ),
    Mutant(
        "sql columns: columns that others changed count as changed by the run",
        _CHANGES,
        "TargetColumns._finish",
        "not are_made(table, begun.after, begun.steps)",
        "False",
        test=f"{_TESTS}::TestOnce::test_columns_that_others_changed_while_a_change_had_no_receipt_are_reported",
    ),
    Mutant(
        "sql columns: a run changes columns without the lock",
        _CHANGES,
        "TargetColumns.apply",
        "if not self._dialect.transactional_ddl:\n    self._take_lock()",
        "",
        test=f"{_TESTS}::TestFence::test_a_run_that_gets_stale_before_its_statement_does_not_execute_it",
    ),
    Mutant(
        "sql columns: a run that takes over does not wait for the lock",
        _CHANGES,
        "TargetColumns.finish",
        "self._take_lock(ending=True)",
        "",
        test=f"{_TESTS}::TestFence::test_a_statement_that_the_server_still_executes_is_ended_by_a_new_run",
    ),
    Mutant(
        "sql columns: a run of an older epoch stores the receipt",
        _CHANGES,
        "TargetColumns._finish",
        "self._refuse_unless_current(connection, bookkeeping)\nself._remove(connection, bookkeeping, begun)",
        "self._remove(connection, bookkeeping, begun)",
        test=f"{_TESTS}::TestFence::test_a_receipt_of_a_stale_epoch_is_left_to_the_new_run",
    ),
    Mutant(
        "sql columns: a statement that the server refused counts as begun",
        _CHANGES,
        "TargetColumns._alter",
        "self._withdraw(begun)",
        "None",
        test=f"{_TESTS}::TestOnce::test_a_statement_that_the_server_refuses_has_not_begun",
    ),
    Mutant(
        "sql columns: no new snapshot of the target after a change",
        _CHANGES,
        "TargetColumns._store_receipt",
        "lost_rows.store_snapshot(connection, table, self._key, bookkeeping, self._context.epoch)",
        "None",
        test=f"{_TESTS}::TestOnce::test_a_renamed_key_is_no_sign_of_lost_rows[False]",
    ),
    Mutant(
        "sql columns: a key that is being renamed is a sign of lost rows",
        "connectors/sql/sink.py",
        "SqlSink._find_loss",
        "begun.names & set(snapshot['key'])",
        "False",
        test=f"{_TESTS}::TestOnce::test_a_renamed_key_is_no_sign_of_lost_rows[True]",
    ),
    Mutant(
        "sql columns: a type that lacks values of the column counts as wider",
        _COLUMNS,
        "may_become",
        "related and not column.fixed and stores(wider, column)",
        "related",
        test=_REFUSED,
    ),
    Mutant(
        "sql columns: another kind of values counts as wider",
        _COLUMNS,
        "may_become",
        "column.kind is wider.kind or (column.kind, wider.kind) in _WIDER_KINDS",
        "True",
        test=_REFUSED,
    ),
    Mutant(
        "sql columns: digits after the point are not compared",
        _COLUMNS,
        "_stores_digits",
        "column.scale >= values.scale",
        "True",
        test=_WIDENED,
    ),
    Mutant(
        "sql columns: the length of a text in bytes counts as characters",
        _COLUMNS,
        "_characters",
        "length // 4",
        "length",
        test=_REFUSED,
    ),
    Mutant(
        "sql columns: a new name that differs only in case is added",
        _COLUMNS,
        "_store",
        "_refuse_similar_name(list(now), step.name, table, pipeline)",
        "",
        test=f"{_TESTS}::TestNewColumn::test_a_name_that_differs_only_in_case_is_refused[sqlite]",
    ),
    Mutant(
        "sql columns: a renamed column takes the place of another",
        _COLUMNS,
        "_rename",
        "new in now",
        "False",
        test=f"{_TESTS}::TestRename::test_a_new_name_that_the_table_has_already_is_refused[mariadb]",
    ),
    Mutant(
        "sql columns: a new column of texts has the table's character set",
        "connectors/sql/mysql_columns.py",
        "alter_columns",
        "'' if collation.startswith('utf8mb4') else ' CHARACTER SET utf8mb4'",
        "''",
        test=f"{_TESTS}::TestNewColumn::test_a_table_of_another_character_set_gets_a_column_that_takes_every_text",
    ),
    Mutant(
        "sql columns: a changed column loses the rest of its definition",
        "connectors/sql/mysql_columns.py",
        "_action",
        "definitions[before.name].removeprefix(before.type_text)",
        "' NULL' if after.nullable else ' NOT NULL'",
        test=f"{_TESTS}::TestWiderType::test_mariadb_keeps_the_rest_of_the_definition",
    ),
    Mutant(
        "sqlite columns: a change of a type is skipped",
        "connectors/sql/sqlite_columns.py",
        "column_change_problem",
        "change.changes_type or change.allows_null",
        "False",
        test=f"{_TESTS}::TestWiderType::test_sqlite_refuses_what_it_cannot_change_with_the_column_and_the_remedy",
    ),
    Mutant(
        "sqlite columns: a new column takes the place of a renamed one",
        "connectors/sql/sqlite_columns.py",
        "alter_columns",
        "change.before is not None",
        "False",
        test=f"{_TESTS}::TestRename::test_a_column_takes_its_values_along_even_if_its_name_is_given_again[sqlite]",
    ),
)
