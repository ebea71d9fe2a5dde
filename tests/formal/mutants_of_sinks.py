"""Defects in claims and fences of the sinks, caught by tests on PostgreSQL, Delta tables and directories, all real."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_POSTGRES = "tests/integration/connectors/test_postgres_sink.py"
_BARRIER = "tests/formal/test_sink_rules.py::test_what_waits_inside_a_batch_when_the_fence_rises_never_commits"
_DELTA = "tests/integration/connectors/test_delta_conformance.py::TestNewTable"
_DELTA_FENCE = "tests/integration/connectors/test_delta_fence.py::TestFence"
_FILES = "tests/integration/connectors/test_files_sink_commit.py"
_HELD_UP = f"{_FILES}::TestRaces::test_a_writer_that_is_held_up_while_another_run_takes_over_claims_nothing"

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
        "        if table is None or table.transaction_version(layout.epoch_app) == epoch:",
        "        if table is None or epoch:",
        test=f"{_DELTA_FENCE}::test_a_commit_prepared_before_the_fence_loses_to_it",
    ),
    Mutant(
        "delta: epochs are compared the wrong way",
        "connectors/delta/fence.py",
        "    if newest > epoch:\n",
        "    if newest < epoch:\n",
        test=f"{_DELTA}::test_a_fence_refuses_whoever_has_an_older_epoch",
    ),
    Mutant(
        "delta: a commit does not look at the fence",
        "connectors/delta/committer.py",
        "                refuse_unless_current(self._layout, table, self._context.epoch)\n",
        "                pass\n",
        test=f"{_DELTA_FENCE}::test_a_stale_epoch_commits_nothing_and_its_files_go",
    ),
    Mutant(
        "delta: rows are committed without their receipts",
        "connectors/delta/committer.py",
        "{self._layout.epoch_app: self._context.epoch, self._layout.receipts_app: number},",
        "{self._layout.epoch_app: self._context.epoch},",
        test=f"{_DELTA}::test_a_batch_is_delivered_with_its_receipt",
    ),
    Mutant(
        "delta: a commit leaves out the receipts before it",
        "connectors/delta/receipts.py",
        '            "previous": previous,\n',
        '            "previous": None,\n',
        test=f"{_DELTA}::test_many_batches_go_through_one_writer",
    ),
    Mutant(
        "files: a marker replaces the one that is there",
        "connectors/files/receipts.py",
        "            os.link(prepared, marker)\n",
        "            os.replace(prepared, marker)\n",
        test=f"{_FILES}::TestRaces::test_a_rival_that_claims_first_has_the_batch",
    ),
    Mutant(
        "files: who loses a claim publishes all the same",
        "connectors/files/writer.py",
        "            discard(self._target, name)\n",
        "            publish(self._target, replace(entry, file=name))\n",
        test=f"{_FILES}::TestRaces::test_a_rival_that_claims_first_has_the_batch",
    ),
    Mutant(
        "files: rows are seen before their marker",
        "connectors/files/writer.py",
        "        entry, ours = self._receipts.claim(receipt, name)\n",
        '        publish(self._target, Entry(receipt, name, ""))\n'
        "        entry, ours = self._receipts.claim(receipt, name)\n",
        test=f"{_FILES}::TestInterruptions::test_a_batch_killed_anywhere_is_settled_by_the_next_run[os-link-False]",
    ),
    Mutant(
        "files: receipts are told before their rows are seen",
        "connectors/files/sink.py",
        "        roll_forward(self._target, self._receipts)\n",
        "",
        test=f"{_FILES}::TestInterruptions::test_what_a_dead_lane_claimed_is_visible_once_its_receipt_is_read",
    ),
    Mutant(
        "files: the fence leaves the older epochs' directories",
        "connectors/files/gate.py",
        "            if older < epoch:\n                _remove(",
        "            if older > epoch:\n                _remove(",
        test=f"{_HELD_UP}[os-link]",
    ),
    Mutant(
        "files: a late fence does not look again",
        "connectors/files/gate.py",
        "    try:\n        refuse_if_fenced(target, epoch)\n    except FencedError:",
        "    try:\n        pass\n    except FencedError:",
        test=f"{_FILES}::TestRaces::test_of_two_that_take_over_at_once_the_newer_epoch_stays",
    ),
    Mutant(
        "files: who reads receipts removes what is about to be claimed",
        "connectors/files/staged.py",
        "        elif entry is not None:\n",
        "        else:\n",
        test=f"{_FILES}::TestInterruptions::test_what_a_lane_is_about_to_claim_is_left_alone_by_who_reads_receipts",
    ),
    Mutant(
        "files: a bundle is written over",
        "connectors/files/receipts.py",
        "        if path.exists():",
        "        if False:",
        test=f"{_FILES}::TestBundles::test_raising_a_fence_again_keeps_what_it_bundled",
    ),
    Mutant(
        "files: markers are bundled before what they claimed is seen",
        "connectors/files/sink.py",
        "        sweep(self._target, self._receipts, epoch)\n        self._receipts.bundle(epoch)\n",
        "        self._receipts.bundle(epoch)\n        sweep(self._target, self._receipts, epoch)\n",
        test=f"{_FILES}::TestInterruptions::test_a_batch_killed_anywhere_is_settled_by_the_next_run[os-link-True]",
    ),
    Mutant(
        "files: a bundle forgets how far those before it reach",
        "connectors/files/receipts.py",
        "        reach = dict(newest.reach) if newest is not None else {}\n",
        "        reach = {}\n",
        test=f"{_FILES}::TestBundles::test_a_bundle_tells_how_far_all_before_it_reach",
    ),
)
