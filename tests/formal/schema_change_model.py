"""Configurations and mutants of ``SchemaChange.tla``, the protocol by which a run follows a source's columns."""

from __future__ import annotations

from tests.formal.specification import Specification

_SMALL, _ONE, _TWO, _FREEZES = "one change", "one row", "two rows", "frozen until accepted"

SCHEMA_CHANGE = Specification(
    "schema change",
    "SchemaChange.tla",
    {
        _SMALL: {"MAX_EPOCH": 2, "ROWS": 1, "MAX_CHANGES": 1, "FREEZES": False},
        _FREEZES: {"MAX_EPOCH": 2, "ROWS": 1, "MAX_CHANGES": 2, "FREEZES": True},
        _ONE: {"MAX_EPOCH": 2, "ROWS": 1, "MAX_CHANGES": 2, "FREEZES": False},
        _TWO: {"MAX_EPOCH": 2, "ROWS": 2, "MAX_CHANGES": 1, "FREEZES": False},
    },
    invariants=(
        "RowsMatchTheirVersion",
        "NoValueIsLost",
        "SchemaBarrierSeparates",
        "SchemaReceiptOnce",
        "VersionsHaveReceipts",
        "NoCommitByStaleEpoch",
        "NoChangeAgainstTheDeclaration",
    ),
    steps=(),
    live={"EveryRowArrives": _ONE},
    mutants={
        "columns_compared_by_name": (_ONE, "RowsMatchTheirVersion"),
        "columns_not_compared": (_ONE, "NoValueIsLost"),
        "columns_looked_at_before_planning": (_ONE, "NoValueIsLost"),
        "missing_columns_are_left_out": (_ONE, "NoValueIsLost"),
        "rename_unseen_if_the_name_is_given_again": (_ONE, "NoValueIsLost"),
        "new_columns_do_not_wait": (_ONE, "SchemaBarrierSeparates"),
        "receipt_after_the_change": (_ONE, "SchemaReceiptOnce"),
        "version_recorded_before_the_receipt": (_ONE, "VersionsHaveReceipts"),
        "change_is_not_fenced": (_ONE, "NoCommitByStaleEpoch"),
        "lanes_are_not_fenced": (_ONE, "NoCommitByStaleEpoch"),
        "acceptance_of_other_columns_counts": (_FREEZES, "NoChangeAgainstTheDeclaration"),
        "all_changes_wait": (_ONE, "EveryRowArrives"),
        "versions_of_the_sink_not_read": (_ONE, "EveryRowArrives"),
    },
    reached={"NeverReplanned": _ONE, "NeverWaited": _ONE, "NeverFollowed": _ONE, "NeverRepaired": _ONE},
)
"""The specification; its configurations have one and two rows, and a declaration that freezes changes."""
