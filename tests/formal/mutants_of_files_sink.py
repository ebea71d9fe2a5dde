"""Mutants of markers and fence of the files sink, detected by tests on real directories."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_FILES = "tests/integration/connectors/files/test_sink_commit.py"
_HELD_UP = f"{_FILES}::TestRaces::test_a_writer_that_is_held_up_while_another_run_takes_over_claims_nothing"

OF_FILES_SINK: Sequence[Mutant] = (
    Mutant(
        "files: a marker replaces the one that is there",
        "connectors/files/receipts.py",
        "FilesReceipts.claim",
        "os.link",
        "os.replace",
        test=f"{_FILES}::TestRaces::test_a_rival_that_claims_first_has_the_batch",
    ),
    Mutant(
        "files: who loses a claim publishes all the same",
        "connectors/files/writer.py",
        "FilesWriter._deliver",
        "discard(self._target, name)",
        "publish(self._target, replace(entry, file=name))",
        test=f"{_FILES}::TestRaces::test_a_rival_that_claims_first_has_the_batch",
    ),
    Mutant(
        "files: rows are seen before their marker",
        "connectors/files/writer.py",
        "FilesWriter._deliver",
        "entry, own = self._receipts.claim(receipt, name)",
        "publish(self._target, ClaimedReceipt(receipt, name, ''))\nentry, own = self._receipts.claim(receipt, name)",
        test=f"{_FILES}::TestInterruptions::test_a_batch_killed_anywhere_is_settled_by_the_next_run[os-link-False]",
    ),
    Mutant(
        "files: receipts are reported before their rows are seen",
        "connectors/files/sink.py",
        "FilesSink.receipts",
        "roll_forward(self._target, self._receipts)",
        "",
        test=f"{_FILES}::TestInterruptions::test_what_a_dead_lane_claimed_is_visible_once_its_receipt_is_read",
    ),
    Mutant(
        "files: the fence leaves the older epochs' directories",
        "connectors/files/fence.py",
        "fence",
        "older < epoch",
        "older > epoch",
        test=f"{_HELD_UP}[os-link]",
    ),
    Mutant(
        "files: a late fence does not read again",
        "connectors/files/fence.py",
        "fence",
        "try:\n    refuse_if_fenced(target, epoch)\nexcept FencedError:\n    _remove_directory(own)\n    raise",
        "try:\n    pass\nexcept FencedError:\n    _remove_directory(own)\n    raise",
        test=f"{_FILES}::TestRaces::test_of_two_that_take_over_at_once_the_newer_epoch_stays",
    ),
    Mutant(
        "files: who reads receipts removes what is about to be claimed",
        "connectors/files/staging.py",
        "_claimed_names",
        "if entry is not None and entry.file == name:\n"
        "    yield name\n"
        "elif entry is not None:\n"
        "    discard(target, name)",
        "if entry is not None and entry.file == name:\n    yield name\nelse:\n    discard(target, name)",
        test=f"{_FILES}::TestInterruptions::test_what_a_lane_is_about_to_claim_is_left_alone_by_who_reads_receipts",
    ),
    Mutant(
        "files: a bundle is written over",
        "connectors/files/receipts.py",
        "FilesReceipts.bundle",
        "path.exists()",
        "False",
        test=f"{_FILES}::TestBundles::test_raising_a_fence_again_keeps_what_it_bundled",
    ),
    Mutant(
        "files: markers are bundled before what they claimed is seen",
        "connectors/files/sink.py",
        "FilesSink.fence",
        "create_identity(self._target)\nsweep(self._target, self._receipts, epoch)",
        "self._receipts.bundle(epoch)\nsweep(self._target, self._receipts, epoch)",
        test=f"{_FILES}::TestInterruptions::test_a_batch_killed_anywhere_is_settled_by_the_next_run[os-link-True]",
    ),
    Mutant(
        "files: a receipt counts though its file is missing",
        "connectors/files/restored_target.py",
        "receipts_without_file",
        "entry.file not in there",
        "False",
        test=f"{_FILES}::TestInterruptions::test_what_is_cleaned_after_a_lane_died_is_not_taken_for_delivered",
    ),
    Mutant(
        "files: missing files are not reported, though their receipts are left out",
        "connectors/files/sink.py",
        "FilesSink.claims",
        "frozenset(entry.receipt.key for entry in vanished)",
        "frozenset()",
        test=f"{_FILES}::TestInterruptions::test_what_is_cleaned_between_claim_and_rename_is_never_called_delivered",
    ),
    Mutant(
        "files: a list of source files counts though a fenced run kept it late",
        "connectors/file_lists.py",
        "continuing_lists",
        "paths.isdisjoint(file.path for file in item.files)",
        "True",
        test="tests/unit/connectors/test_file_lists.py::test_what_a_fenced_run_listed_late_counts_for_nothing",
    ),
    Mutant(
        "files: a bundle forgets how far those before it reach",
        "connectors/files/receipts.py",
        "FilesReceipts.bundle",
        "dict(newest.positions) if newest is not None else {}",
        "{}",
        test=f"{_FILES}::TestBundles::test_a_bundle_tells_how_far_all_before_it_reach",
    ),
)
