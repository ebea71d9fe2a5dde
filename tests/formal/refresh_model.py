"""Configurations and mutants of ``Refresh.tla``, the protocol of a full refresh."""

from __future__ import annotations

from tests.formal.specification import Specification

_TWO, _THREE = "two runs", "three runs"

REFRESH = Specification(
    "refresh",
    "Refresh.tla",
    {
        _TWO: {"MAX_EPOCH": 2, "MAX_VERSION": 2, "MAX_CRASHES": 1, "MAX_SKIPS": 1, "MAX_OTHERS": 1},
        _THREE: {"MAX_EPOCH": 3, "MAX_VERSION": 2, "MAX_CRASHES": 1, "MAX_SKIPS": 1, "MAX_OTHERS": 1},
    },
    invariants=(
        "ReadersSeeOneGeneration",
        "PublishedGenerationIsComplete",
        "PublicationWaitsForRows",
        "PublicationHasReceipt",
        "ReceiptHasItsRows",
        "DoneIsPublishedOrHeld",
        "NoCommitByStaleEpoch",
    ),
    steps=("PublishMonotonic", "FewerRowsAreReleased"),
    live={"RefreshEnds": _TWO},
    mutants={
        "emptied_before_the_rows_are_inserted": (_TWO, "PublishedGenerationIsComplete"),
        "claimed_before_the_rows_are_replaced": (_TWO, "ReceiptHasItsRows"),
        "counts_not_compared": (_TWO, "PublishedGenerationIsComplete"),
        "skipped_counts_as_staged": (_TWO, "PublishedGenerationIsComplete"),
        "lanes_read_without_the_snapshot": (_TWO, "ReadersSeeOneGeneration"),
        "continued_under_a_new_snapshot": (_TWO, "ReadersSeeOneGeneration"),
        "snapshot_before_the_lease": (_TWO, "PublishMonotonic"),
        "publication_planned_early": (_TWO, "PublicationWaitsForRows"),
        "begun_counts_as_done": (_TWO, "PublicationHasReceipt"),
        "nobody_is_asked": (_TWO, "FewerRowsAreReleased"),
        "counted_before_the_transaction": (_TWO, "FewerRowsAreReleased"),
        "lanes_are_not_fenced": (_TWO, "NoCommitByStaleEpoch"),
        "publication_is_not_fenced": (_TWO, "NoCommitByStaleEpoch"),
        "ledger_takes_stale_epochs": (_TWO, "DoneIsPublishedOrHeld"),
        "staging_prepared_without_the_fence": (_TWO, "RefreshEnds"),
        "generation_is_used_again": (_TWO, "RefreshEnds"),
        "refresh_of_another_process_is_continued": (_TWO, "RefreshEnds"),
        "lost_staging_is_continued": (_TWO, "RefreshEnds"),
    },
    reached={
        "NeverPublishedByTwo": _TWO,
        "NeverReleased": _TWO,
        "NeverRefused": _TWO,
        "NeverGrown": _TWO,
        "NeverLate": _TWO,
    },
)
"""The specification; its configurations have two and three runs."""
