"""Configurations and mutants of ``SchemaChange.tla``, the protocol by which a run follows a source's columns."""

from __future__ import annotations

from tests.formal.specification import Specification
from tests.formal.tlc_models import Bounds, Constant

_SMALL, _ONE, _TWO, _FREEZES = "one change", "one row", "two rows", "frozen until accepted"
_PARTS = "changes in parts"
_TYPES, _DISCARDS, _REFUSES, _AT_MOST_ONCE = "types", "discard", "dead letters", "at most once"
_NAMES = frozenset({"add", "drop", "replace", "rename"})


def _bounds(changes: int, *, rows: int = 1, kinds: frozenset[str] = _NAMES, **others: Constant) -> Bounds:
    """Return the constants of a configuration with two runs.

    :param changes: number of changes of the source's columns
    :param rows: number of rows
    :param kinds: kinds of the changes
    :param others: constants that differ from those of a pipeline that follows every change, exactly once
    """
    return {
        "MAX_EPOCH": 2,
        "ROWS": rows,
        "MAX_CHANGES": changes,
        "CHANGES": kinds,
        "NEW_COLUMN": "evolve",
        "LAST_NEW_COLUMN": "evolve",
        "OTHER_TYPE": "freeze",
        "FREEZES": False,
        "IN_PARTS": False,
        "AT_MOST_ONCE": False,
        **others,
    }


SCHEMA_CHANGE = Specification(
    "schema change",
    "SchemaChange.tla",
    {
        _SMALL: _bounds(1, kinds=_NAMES | {"widen"}),
        _FREEZES: _bounds(2, FREEZES=True),
        _ONE: _bounds(2),
        _TWO: _bounds(1, rows=2),
        _PARTS: _bounds(2, IN_PARTS=True),
        _TYPES: _bounds(3, kinds=frozenset({"widen", "narrow", "update"}), OTHER_TYPE="dead_letter"),
        _DISCARDS: _bounds(2, NEW_COLUMN="discard", LAST_NEW_COLUMN="discard"),
        _REFUSES: _bounds(2, kinds=frozenset({"add", "drop"}), NEW_COLUMN="dead_letter"),
        _AT_MOST_ONCE: _bounds(2, kinds=frozenset({"add", "rename"}), AT_MOST_ONCE=True),
    },
    invariants=(
        "RowsMatchTheirVersion",
        "NoValueIsLost",
        "NoSilentNarrowing",
        "SchemaBarrierSeparates",
        "SchemaReceiptOnce",
        "VersionsHaveReceipts",
        "NoCommitByStaleEpoch",
        "NoChangeAgainstTheDeclaration",
    ),
    steps=(),
    live={"EveryRowArrives": _ONE, "EveryRowArrivesInParts": _PARTS, "EveryRowIsSent": _AT_MOST_ONCE},
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
        "begun_changes_are_left": (_PARTS, "EveryRowArrivesInParts"),
        "a_change_that_was_made_is_made_again": (_PARTS, "RowsMatchTheirVersion"),
        "the_lock_is_not_taken_over": (_PARTS, "NoCommitByStaleEpoch"),
        "types_not_compared": (_TYPES, "NoSilentNarrowing"),
        "the_target_is_not_widened": (_TYPES, "NoSilentNarrowing"),
        "another_type_is_followed": (_TYPES, "NoSilentNarrowing"),
        "discarded_columns_are_added": (_DISCARDS, "NoChangeAgainstTheDeclaration"),
        "left_out_columns_are_sent": (_DISCARDS, "RowsMatchTheirVersion"),
        "refused_rows_are_delivered": (_REFUSES, "RowsMatchTheirVersion"),
        "dead_letters_lack_the_refused_column": (_REFUSES, "NoValueIsLost"),
        "admitted_columns_do_not_wait": (_REFUSES, "SchemaBarrierSeparates"),
        "versions_begin_beside_unconfirmed_batches": (_AT_MOST_ONCE, "RowsMatchTheirVersion"),
        "batches_sent_at_most_once_are_waited_for": (_AT_MOST_ONCE, "EveryRowIsSent"),
    },
    reached={
        "NeverReplanned": _ONE,
        "NeverWaited": _ONE,
        "NeverFollowed": _ONE,
        "NeverRepaired": _ONE,
        "NeverCompleted": _PARTS,
        "NeverBegunInVain": _PARTS,
        "NeverWidened": _TYPES,
        "NeverOfARefusedType": _TYPES,
        "NeverReadAgain": _TYPES,
        "NeverLeftOut": _DISCARDS,
        "NeverRefused": _REFUSES,
        "NeverAdmitted": _REFUSES,
        "NeverAdmittedLate": _REFUSES,
        "NeverUnconfirmed": _AT_MOST_ONCE,
        "NeverLost": _AT_MOST_ONCE,
    },
)
"""The specification; its configurations have one or two rows, the policies for columns, changes of the target in
parts, and at-most-once delivery."""
