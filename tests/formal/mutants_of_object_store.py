"""Mutants of the files sink in object stores, detected by tests on a real S3 server."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_SINK = "connectors/files/object_store/sink.py"
_PUBLICATION = "connectors/files/object_store/publication.py"
_LOCATION = "connectors/storage/object_store.py"
_TESTS = "tests/integration/connectors/files/test_object_sink_commit.py"
_LATE_COMMIT = f"{_TESTS}::TestRaces::test_a_commit_that_arrives_after_the_fence_is_refused"
_DEATHS = f"{_TESTS}::TestDeaths::test_a_wave_that_dies_anywhere_is_settled_by_the_next_run"

OF_OBJECT_STORE: Sequence[Mutant] = (
    Mutant(
        "object store: the fence is not stored",
        "connectors/files/object_store/version.py",
        "ObjectFilesVersion.replace",
        "return self.layout.head.swap(json.dumps(document).encode(), self._known)",
        "return head is None or self.layout.head.swap(json.dumps(document).encode(), self._known)",
        test=f"{_TESTS}::TestRaces::test_of_two_that_take_over_at_once_the_newer_epoch_stays",
    ),
    Mutant(
        "object store: a fence is lowered",
        "connectors/files/object_store/fence.py",
        "fence",
        "version.refuse_if_fenced(epoch)",
        "",
        test="tests/integration/connectors/files/test_object_sink_conformance.py"
        "::TestObjectFilesSink::test_a_fence_is_never_lowered[versitygw]",
    ),
    Mutant(
        "object store: the head is replaced without a condition",
        _LOCATION,
        "ObjectLocation.swap",
        "'create' if known is None else dict(known)",
        "'overwrite'",
        test=_LATE_COMMIT,
    ),
    Mutant(
        "object store: a staged object is removed before it is copied",
        _PUBLICATION,
        "publish",
        "staged.copy_to(visible)",
        "(staged.remove() or staged.copy_to(visible))",
        test=f"{_TESTS}::TestRaces::test_a_lane_that_runs_twice_delivers_once",
    ),
    Mutant(
        "object store: receipts are reported before their rows are seen",
        _SINK,
        "ObjectFilesSink.receipts",
        "roll_forward(self._layout, self._receipts, head)",
        "",
        test=f"{_TESTS}::TestDeaths::test_what_a_dead_run_committed_is_visible_once_its_receipt_is_read",
    ),
    Mutant(
        "object store: what was committed and not copied is swept away",
        _PUBLICATION,
        "sweep",
        "roll_forward(layout, receipts, head)",
        "",
        test=f"{_DEATHS}[replace the head-True]",
    ),
    Mutant(
        "object store: what was never committed stays staged",
        _PUBLICATION,
        "sweep",
        "staged_by < epoch",
        "staged_by > epoch",
        test=f"{_DEATHS}[write receipts-True]",
    ),
    Mutant(
        "object store: a delivered object that is gone is not told",
        _PUBLICATION,
        "find_missing_files",
        "visible.size() is None and staged.size() is None and visible.size() is None",
        "False",
        test=f"{_TESTS}::TestRemovedObjects::test_a_delivered_object_that_is_removed_is_told",
    ),
    Mutant(
        "object store: a head that was set back is not told",
        "connectors/files/object_store/version.py",
        "ObjectFilesVersion.set_back",
        "self._number >= accepted",
        "True",
        test=f"{_TESTS}::TestRemovedObjects::test_a_head_that_was_set_back_is_told",
    ),
)
