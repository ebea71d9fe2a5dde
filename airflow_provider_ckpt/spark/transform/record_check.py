"""The check of a raw record: an SQL condition, and the verdict of a record that fails it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """Check that a record must pass before any expression of the transform is evaluated for it.

    :param failed: SQL condition that is true for a record that fails the check
    :param verdict: verdict of a record that fails the check: ``filtered``, or an error type
    :param message: error message of a record that fails the check
    """

    failed: str
    verdict: str
    message: str
