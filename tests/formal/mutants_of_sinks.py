"""Defects in claims and fences of the sinks, caught by tests on a real PostgreSQL and on real lake tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_POSTGRES = "tests/integration/connectors/test_postgres_sink.py"
_BARRIER = "tests/formal/test_sink_rules.py::test_what_waits_inside_a_batch_when_the_fence_rises_never_commits"
_DELTA = "tests/integration/connectors/test_delta_conformance.py::TestNewTable"
_DELTA_FENCE = "tests/integration/connectors/test_delta_fence.py::TestFence"
_ICEBERG = "tests/integration/connectors/test_iceberg_conformance.py::TestNewTable"
_ICEBERG_FENCE = "tests/integration/connectors/test_iceberg_fence.py::TestFence"
_ICEBERG_COMMIT = "tests/integration/connectors/test_iceberg_commit.py"

OF_SINKS: Sequence[Mutant] = (
    Mutant(
        "postgres: the fence does not wait for whoever holds it",
        "connectors/postgres/sink.py",
        "        except psycopg2.errors.LockNotAvailable:\n            return False",
        "        except psycopg2.errors.LockNotAvailable:\n            return True",
        test=f"{_POSTGRES}::TestFence::test_it_ends_a_transaction_of_an_older_epoch_that_does_not_end_by_itself",
    ),
    Mutant(
        "postgres: a lane does not hold the fence to its end",
        "connectors/postgres/bookkeeping.py",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch = {{2}}",
        test=_BARRIER,
    ),
    Mutant(
        "postgres: the receipt is committed on its own, before the rows",
        "connectors/postgres/claim.py",
        'f"BEGIN ISOLATION LEVEL READ COMMITTED; {books.claim.format(*map(literal, values))}"',
        'f"BEGIN; {books.claim.format(*map(literal, values))}; COMMIT; BEGIN"',
        test=_BARRIER,
    ),
    Mutant(
        "postgres: epochs are compared the wrong way when a lane claims",
        "connectors/postgres/bookkeeping.py",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch >= {{2}} FOR SHARE",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_refuses_whoever_has_an_older_epoch[append]",
    ),
    Mutant(
        "postgres: the fence can be lowered",
        "connectors/postgres/sink.py",
        "            if held[0][0] > epoch:\n",
        "            if held[0][0] < epoch:\n",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_is_never_lowered[append]",
    ),
    Mutant(
        "postgres: a claim that finds a receipt delivers all the same",
        "connectors/postgres/claim.py",
        "            return False\n        if",
        '            cursor.executescript("ROLLBACK; BEGIN")\n            return True\n        if',
        test=f"{_POSTGRES}::TestConformance::test_a_second_delivery_finds_the_receipt_and_has_no_effect[append]",
    ),
    Mutant(
        "delta: the fence is a file alone, and no commit",
        "connectors/delta/fence.py",
        "        if version.table is None or version.committed_epoch == epoch:",
        "        if version.table is None or epoch:",
        test=f"{_DELTA_FENCE}::test_a_commit_prepared_before_the_fence_loses_to_it",
    ),
    Mutant(
        "delta: epochs are compared the wrong way",
        "connectors/two_phase/version.py",
        "        if newest > epoch:\n",
        "        if newest < epoch:\n",
        test=f"{_DELTA}::test_a_fence_refuses_whoever_has_an_older_epoch",
    ),
    Mutant(
        "delta: a commit does not look at the fence",
        "connectors/two_phase/committer.py",
        "                version.refuse_unless_current(self._context.epoch)\n",
        "                pass\n",
        test=f"{_DELTA_FENCE}::test_a_stale_epoch_commits_nothing_and_its_files_go",
    ),
    Mutant(
        "delta: rows are committed without their receipts",
        "connectors/delta/version.py",
        "{self.layout.epoch_app: epoch, self.layout.receipts_app: head}",
        "{self.layout.epoch_app: epoch}",
        test=f"{_DELTA}::test_a_batch_is_delivered_with_its_receipt",
    ),
    Mutant(
        "delta: a commit leaves out the receipts before it",
        "connectors/two_phase/receipts.py",
        '            "previous": previous,\n',
        '            "previous": None,\n',
        test=f"{_DELTA}::test_many_batches_go_through_one_writer",
    ),
    Mutant(
        "iceberg: the fence is a property alone, and no snapshot",
        "connectors/iceberg/version.py",
        "            requirements = (*transaction._requirements,",
        "            if not files:\n"
        "                transaction = self.table.transaction().set_properties(properties)\n"
        "            requirements = (*transaction._requirements,",
        test=f"{_ICEBERG_FENCE}::test_a_commit_prepared_before_the_fence_is_refused",
    ),
    Mutant(
        "iceberg: the library commits, and tries again by itself",
        "connectors/iceberg/version.py",
        "            self.table._do_commit(transaction._updates, requirements)\n",
        "            transaction.commit_transaction()\n",
        test=f"{_ICEBERG_FENCE}::test_a_commit_prepared_before_the_fence_is_refused",
    ),
    Mutant(
        "iceberg: a conflict is taken as proof that nothing was committed, and its manifests are removed",
        "connectors/iceberg/version.py",
        "            self.table._do_commit(transaction._updates, requirements)\n",
        "            self.table.metadata.properties['commit.retry.num-retries'] = '0'\n"
        "            transaction.commit_transaction()\n",
        test=f"{_ICEBERG_COMMIT}::TestInterruptions::test_an_error_after_the_commit_is_a_commit_and_deletes_nothing",
    ),
    Mutant(
        "iceberg: a commit does not say what it builds on",
        "connectors/iceberg/version.py",
        "requirements = (*transaction._requirements, AssertTableUUID",
        "requirements = (AssertTableUUID",
        test=f"{_ICEBERG_FENCE}::test_a_commit_prepared_before_the_fence_is_refused",
    ),
    Mutant(
        "iceberg: a table that was dropped and made anew is taken for the old one",
        "connectors/iceberg/version.py",
        "(*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))",
        "transaction._requirements",
        test=f"{_ICEBERG_COMMIT}::TestRaces::test_a_table_that_is_made_anew_meanwhile_takes_no_rows_of_ours",
    ),
    Mutant(
        "iceberg: an error of the commit is taken for a commit that did not happen",
        "connectors/iceberg/version.py",
        "            if not self._address.moved(self.table):\n",
        "            if self.table:\n",
        test=f"{_ICEBERG_COMMIT}::TestInterruptions::test_an_error_after_the_commit_is_a_commit_and_deletes_nothing",
    ),
    Mutant(
        "iceberg: rows are committed without their receipts",
        "connectors/iceberg/version.py",
        "{self.layout.epoch_property: str(epoch), self.layout.head_property: str(head)}",
        "{self.layout.epoch_property: str(epoch)}",
        test=f"{_ICEBERG}::test_a_batch_is_delivered_with_its_receipt",
    ),
    Mutant(
        "two phases: files of a commit whose fate is unknown are removed",
        "connectors/two_phase/committer.py",
        "            if index not in wave.attempted:\n",
        "            if True:\n",
        test=f"{_ICEBERG_COMMIT}::TestInterruptions::test_files_of_a_commit_that_may_still_come_are_kept",
    ),
    Mutant(
        "iceberg: a running epoch's files are swept away",
        "connectors/iceberg/orphans.py",
        "first <= int(directory.name) < end:",
        "first <= int(directory.name) <= end:",
        test=f"{_ICEBERG_COMMIT}::TestOrphans::test_a_fence_removes_what_older_epochs_staged_and_never_committed",
    ),
    Mutant(
        "iceberg: the sweep stops at the newest receipts",
        "connectors/two_phase/receipts.py",
        "            if all(entry.receipt.epoch < since for entry in node.entries):\n",
        "            if names:\n",
        test=f"{_ICEBERG_COMMIT}::TestOrphans::test_a_file_that_was_committed_is_never_an_orphan",
    ),
)
