"""Configurations and mutants of ``ObjectStore.tla``, the protocol of the files sink in an object store."""

from __future__ import annotations

from tests.formal.specification import Specification

_BATCHES, _TWINS = "two batches", "a batch that a lane executes twice"

OBJECT_STORE = Specification(
    "object store",
    "ObjectStore.tla",
    {
        _BATCHES: {"MAX_EPOCH": 2, "BATCHES": frozenset({"b1", "b2"}), "TWINS": frozenset({1}), "MAX_VERSION": 4},
        _TWINS: {"MAX_EPOCH": 2, "BATCHES": frozenset({"b1"}), "TWINS": frozenset({1, 2}), "MAX_VERSION": 4},
    },
    invariants=("NoCommitByStaleEpoch", "AtMostOneVerdictPerBatch", "VisibleHasReceipt", "ReceiptHasItsRows"),
    steps=("ReceiptsStay", "VisibleStays"),
    mutants={
        "condition_ignored": (_BATCHES, "NoCommitByStaleEpoch"),
        "fence_reads_alone": (_BATCHES, "NoCommitByStaleEpoch"),
        "epoch_not_checked": (_BATCHES, "NoCommitByStaleEpoch"),
        "sweep_before_the_fence": (_BATCHES, "ReceiptHasItsRows"),
        "sweep_publishes_nothing": (_BATCHES, "ReceiptHasItsRows"),
        "visible_before_the_commit": (_BATCHES, "VisibleHasReceipt"),
        "receipts_not_read": (_TWINS, "AtMostOneVerdictPerBatch"),
        "unknown_counts_as_failed": (_BATCHES, "ReceiptHasItsRows"),
        "removed_before_the_copy": (_BATCHES, "ReceiptHasItsRows"),
        "fence_forgets_receipts": (_BATCHES, "ReceiptsStay"),
        "sweep_removes_objects_of_older_runs": (_BATCHES, "VisibleStays"),
    },
    reached={"NeverTwoFences": _BATCHES, "NeverVisible": _BATCHES, "NeverRefused": _BATCHES},
)
"""The specification; its configurations have two batches, and one batch that a lane executes twice."""
