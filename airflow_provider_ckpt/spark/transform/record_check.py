"""Define a check of a record: a SQL condition, and the verdict of a record that fails the check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """Check that the transform makes of each record in SQL, such as for valid UTF-8 or for null values.

    :param failed: SQL condition that is true for a record that fails the check
    :param verdict: verdict of a record that fails the check: ``filtered``, or the error type of its dead letter
    :param message: error message of a record that fails the check
    """

    failed: str
    verdict: str
    message: str
