"""Mutants of commits and fence of the iceberg sink, detected by tests on real tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_TWO_PHASE = "tests/integration/connectors/two_phase"
_PREPARED = f"{_TWO_PHASE}/test_fence.py::TestFence::test_a_commit_prepared_before_the_fence_is_refused"
_LOST_ANSWER = (
    f"{_TWO_PHASE}/test_commit.py::TestLostAnswers::test_an_error_after_the_commit_is_a_commit_and_deletes_nothing"
)
_ICEBERG_COMMIT = "tests/integration/connectors/iceberg/test_commit.py"

OF_ICEBERG: Sequence[Mutant] = (
    Mutant(
        "iceberg: the fence is a property alone, and no snapshot",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "requirements = (*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        "if not files:\n"
        "    transaction = self.table.transaction().set_properties(properties)\n"
        "requirements = (*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        test=f"{_PREPARED}[iceberg-True]",
    ),
    Mutant(
        "iceberg: the library commits, and tries again by itself",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "self.table._do_commit(transaction._updates, requirements)",
        "transaction.commit_transaction()",
        test=f"{_PREPARED}[iceberg-True]",
    ),
    Mutant(
        "iceberg: a conflict is taken as proof that nothing was committed, and its manifests are removed",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "self.table._do_commit(transaction._updates, requirements)",
        "(self.table.metadata.properties.update({'commit.retry.num-retries': '0'}), transaction.commit_transaction())",
        test=f"{_LOST_ANSWER}[iceberg-conflict]",
    ),
    Mutant(
        "iceberg: a commit does not say what it builds on",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "(*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        "AssertTableUUID(uuid=self.table.metadata.table_uuid)",
        test=f"{_PREPARED}[iceberg-True]",
    ),
    Mutant(
        "iceberg: a table that was dropped and made anew is taken for the old one",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "(*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        "transaction._requirements",
        test=f"{_ICEBERG_COMMIT}::test_a_table_that_is_made_anew_meanwhile_takes_no_rows_of_ours",
    ),
    Mutant(
        "iceberg: an error of the commit is taken for a commit that did not happen",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit",
        "not self._address.has_changed(self.table)",
        "self.table",
        test=f"{_LOST_ANSWER}[iceberg-conflict]",
    ),
    Mutant(
        "iceberg: rows are committed without their receipts",
        "connectors/iceberg/table_version.py",
        "IcebergVersion._commit_batches",
        "{self.layout.epoch_property: str(epoch), self.layout.head_property: str(head)}",
        "{self.layout.epoch_property: str(epoch)}",
        test=f"{_TWO_PHASE}/test_conformance.py::TestNewTable::test_a_batch_is_delivered_with_its_receipt[iceberg]",
    ),
    Mutant(
        "two phases: files of a commit whose fate is unknown are removed",
        "connectors/two_phase/staging.py",
        "StagedWave.discard",
        "index not in self.attempted",
        "True",
        test=f"{_ICEBERG_COMMIT}::test_files_of_a_commit_that_may_still_come_are_kept",
    ),
)
