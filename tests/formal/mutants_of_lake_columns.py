"""Mutants of the code that changes columns of Delta and Iceberg tables, detected by tests on real tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_CHANGES = "connectors/two_phase/schema_changes.py"
_APPLY = "ChangesColumns.apply_schema_version"
_TWO_PHASE = "tests/integration/connectors/two_phase/test_schema_changes.py"
_ICEBERG = "tests/integration/connectors/iceberg/test_schema_changes.py"
_DELTA = "tests/integration/connectors/delta/test_schema_changes.py"
_KNOWN = f"{_TWO_PHASE}::TestNewColumn::test_a_table_that_has_it_already_keeps_it_as_it_is"
_KEPT = f"{_TWO_PHASE}::TestOtherWriters::test_a_column_that_another_writer_adds_in_between_is_kept"

OF_LAKE_COLUMNS: Sequence[Mutant] = (
    Mutant(
        "lake columns: a version that has a receipt is applied again",
        _CHANGES,
        _APPLY,
        "any(found.number >= version.number for found in known)",
        "False",
        test=f"{_TWO_PHASE}::TestOnce::test_a_version_is_applied_once[delta]",
    ),
    Mutant(
        "lake columns: a commit whose answer was lost is taken for one of another run",
        _CHANGES,
        _APPLY,
        "tried and version.to_json() in [found.to_json() for found in known]",
        "False",
        test=f"{_TWO_PHASE}::TestOnce::test_an_error_after_the_commit_is_a_commit[delta-unknown]",
    ),
    Mutant(
        "lake columns: a run of an older epoch changes the table",
        _CHANGES,
        _APPLY,
        "table.refuse_unless_current(epoch)",
        "",
        test=f"{_TWO_PHASE}::TestFence::test_a_stale_epoch_changes_nothing[iceberg]",
    ),
    Mutant(
        "lake columns: a table that was set back is changed",
        _CHANGES,
        _APPLY,
        "refuse_loss(table, receipts)",
        "",
        test=f"{_TWO_PHASE}::TestReceipts::test_a_table_that_was_set_back_before_the_change_is_reported[delta]",
    ),
    Mutant(
        "lake columns: a lost race does not compute the changes again",
        _CHANGES,
        _APPLY,
        "table.needed_changes(steps)",
        "locals().get('changes') or table.needed_changes(steps)",
        test=f"{_TWO_PHASE}::TestOtherWriters"
        "::test_the_same_column_that_another_writer_adds_in_between_is_added_once[iceberg]",
    ),
    Mutant(
        "lake columns: versions of all partitions share their numbers",
        _CHANGES,
        _APPLY,
        "found.partition == version.partition",
        "True",
        test=f"{_TWO_PHASE}::TestOnce::test_versions_of_another_partition_have_numbers_of_their_own[delta]",
    ),
    Mutant(
        "lake columns: a stale epoch leaves a receipt where there is no table",
        _CHANGES,
        "ChangesColumns._store_before_table",
        "path.remove()\nraise",
        "raise",
        test=f"{_DELTA}::test_an_epoch_that_gets_stale_while_it_stores_a_receipt_without_a_table_leaves_none",
    ),
    Mutant(
        "lake columns: a receipt that a crash cut short cannot be written again",
        _CHANGES,
        "ChangesColumns._store_before_table",
        "_read(path) is None",
        "False",
        test=f"{_DELTA}::test_a_receipt_from_the_time_before_the_table_that_a_crash_cut_short_does_not_count",
    ),
    Mutant(
        "lake columns: receipts of versions are lost behind those of batches",
        "connectors/two_phase/receipts.py",
        "ReceiptChain._newest_schema_node",
        "head if node.schema is not None else node.schema_before",
        "head if node.schema is not None else None",
        test=f"{_TWO_PHASE}::TestReceipts::test_they_are_found_without_the_nodes_between_them[delta]",
    ),
    Mutant(
        "lake columns: a chain that is cut forgets the versions",
        "connectors/two_phase/receipts.py",
        "ReceiptChain.start_new_chain",
        "self._newest_schema_node(head)",
        "None",
        test=f"{_TWO_PHASE}::TestReceipts::test_a_chain_that_is_cut_at_a_batch_keeps_the_versions[delta]",
    ),
    Mutant(
        "lake columns: a new name that differs only in case is added",
        "connectors/two_phase/column_changes.py",
        "_needed",
        "_refuse_similar_name(now, step.name, rules)",
        "",
        test=f"{_TWO_PHASE}::TestNewColumn::test_a_name_that_differs_only_in_case_is_refused[iceberg]",
    ),
    Mutant(
        "lake columns: a column that stores all values is changed to a narrower type",
        "connectors/two_phase/column_changes.py",
        "_needed",
        "column.type == wanted or is_wider(wanted, column.type)",
        "column.type == wanted",
        test=f"{_ICEBERG}::test_rows_of_narrower_types_fit_a_wider_table",
    ),
    Mutant(
        "lake columns: any integer type counts as wider",
        "connectors/two_phase/type_widening.py",
        "is_wider",
        "_INTEGERS[after] > _INTEGERS[before]",
        "True",
        test=f"{_DELTA}::test_wider_rows_do_not_fit_a_narrower_column",
    ),
    Mutant(
        "lake columns: rows of a version may not lack a column",
        "connectors/two_phase/column_types.py",
        "rows_may_lack_columns",
        "pipeline.sink.adds_columns or pipeline.schema_ is not None",
        "pipeline.sink.adds_columns",
        test=f"{_TWO_PHASE}::TestNewColumn::test_rows_may_lack_it_and_are_null[delta]",
    ),
    Mutant(
        "iceberg columns: the commit leaves out the receipt of the version",
        "connectors/iceberg/table_version.py",
        "IcebergVersion.change_columns",
        "{self.layout.epoch_property: str(epoch), self.layout.head_property: str(head)}",
        "{self.layout.epoch_property: str(epoch)}",
        test=f"{_KNOWN}[iceberg]",
    ),
    Mutant(
        "iceberg columns: columns that others add in between are lost",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "(*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        "(*(each for each in transaction._requirements if type(each).__name__ != 'AssertCurrentSchemaId'),"
        " AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        test=f"{_KEPT}[iceberg]",
    ),
    Mutant(
        "iceberg columns: the scale of a decimal is changed",
        "connectors/iceberg/column_types.py",
        "_widening_refusal",
        "narrow.scale != wide.scale",
        "False",
        test=f"{_ICEBERG}::test_a_type_that_the_format_cannot_widen_is_refused_with_the_column_and_the_remedy",
    ),
    Mutant(
        "delta columns: the commit leaves out the receipt of the version",
        "connectors/delta/table_version.py",
        "DeltaVersion.change_columns",
        "{**transactions, self.layout.receipts_app: head}",
        "{**transactions}",
        test=f"{_DELTA}::test_new_columns_are_one_commit_with_the_epoch_and_the_receipt",
    ),
    Mutant(
        "delta columns: the receipt is committed before the last change",
        "connectors/delta/table_version.py",
        "DeltaVersion.change_columns",
        "delta_table.allow_null(self.table, path, required[0], transactions, described)",
        "delta_table.allow_null(self.table, path, required[0], last, described)",
        test=f"{_DELTA}::test_a_process_killed_between_the_commits_of_a_version_is_settled_by_the_next_run",
    ),
    Mutant(
        "delta columns: narrower rows are written as they are",
        "connectors/delta/writer.py",
        "DeltaWriter._convert_rows",
        "self._pipeline.schema_ is not None",
        "False",
        test=f"{_DELTA}::test_after_the_remedy_the_run_goes_on",
    ),
)
