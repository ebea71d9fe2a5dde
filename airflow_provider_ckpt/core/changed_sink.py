"""Compare a sink with the state in which the ledger left it, to detect a sink that lost commits (semantics, section 4).

A sink that was restored, failed over without its last transactions, or recreated has lost the last commits that this
ledger knows. The last commit of a pipeline is either the fence of the newest epoch or a receipt of that epoch, so it is
enough to compare the fence and to look for those receipts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey


class SinkDifference(StrEnum):
    """Kind of difference between a sink and the state in which the ledger left it; a run refuses such a sink.

    - ``fence_below``: the sink's fence is below the newest epoch that fenced it
    - ``receipts_missing``: receipts that the ledger knows are no longer in the sink
    - ``receipts_unreadable``: receipts in the sink are gone or damaged
    - ``other_target``: the target has another identity, for example because the table was created again
    - ``rows_gone``: rows are gone although their receipts are still there
    - ``other_location``: the pipeline now names another table, topic or directory
    - ``not_accepted``: a user began to accept the changed sink, and the command did not finish
    """

    FENCE_BELOW = "fence_below"
    RECEIPTS_MISSING = "receipts_missing"
    RECEIPTS_UNREADABLE = "receipts_unreadable"
    OTHER_TARGET = "other_target"
    ROWS_GONE = "rows_gone"
    OTHER_LOCATION = "other_location"
    NOT_ACCEPTED = "not_accepted"


@dataclass(frozen=True, slots=True)
class UnfinishedAcceptance:
    """Record of a user's acceptance of a changed sink that was started and not completed yet.

    An acceptance fences the sink, which hides some of the differences. The ledger therefore stores the differences that
    were found before.

    :param differences: kinds of the differences that were found before the sink was fenced
    :param description: the part of an error message that describes the differences, see :func:`describe_differences`
    :param lost_batches: batches whose rows were gone before the sink was fenced, according to the sink
    """

    differences: frozenset[SinkDifference]
    description: str
    lost_batches: frozenset[BatchKey] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON-ready dict, the form in which the ledger stores it.

        :meth:`from_json` is the inverse.
        """
        return {
            "seen": sorted(self.differences),
            "told": self.description,
            "gone": [key.to_json() for key in sorted(self.lost_batches)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnfinishedAcceptance:
        """Restore the record of an unfinished acceptance from the output of :meth:`to_json`."""
        lost_batches = frozenset(BatchKey.from_json(key) for key in data["gone"])
        return cls(frozenset(map(SinkDifference, data["seen"])), data["told"], lost_batches)


@dataclass(frozen=True, slots=True)
class ExpectedSinkState:
    """State of the sink as the ledger left it, with which a run compares the sink before it sends anything.

    :param epoch: the newest epoch that fenced the sink; None if none is known
    :param target: the identity of the target table, topic or directory; None while it is not known
    :param location: the name or path of the target; None until a run has stored it
    :param may_have_rows: whether any batch has a receipt or an open attempt, so that the target may contain its rows
        and another location is a difference
    :param unfinished_acceptance: a user's acceptance of a changed sink that was started and not completed; None if
        there is none
    """

    epoch: int | None = None
    target: str | None = None
    location: str | None = None
    may_have_rows: bool = True
    unfinished_acceptance: UnfinishedAcceptance | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """State of the sink as it is now, for the comparison with the state in which the ledger left it.

    :param epoch: the highest epoch of its fence, 0 if there is none
    :param target: the identity of the target table, topic or directory; None if the target does not exist, or the sink
        cannot identify it
    :param location: the name or path of the target
    :param loss_evidence: a sentence with evidence from the sink itself that rows are gone although its receipts are
        still there; None if there is no evidence
    :param missing: batches whose receipts the ledger knows and the sink no longer has
    :param unreadable: a sentence that names the receipts which are gone or damaged; None if all can be read
    :param lost_batches: batches whose rows the sink knows to be gone, and whose receipts it therefore does not return
    :param other_target: the sink's own description of the difference ``other_target`` for the error message; None if
        the message shall name the two identities
    """

    epoch: int
    target: str | None
    location: str
    loss_evidence: str | None = None
    missing: Sequence[BatchKey] = ()
    unreadable: str | None = None
    lost_batches: frozenset[BatchKey] = frozenset()
    other_target: str | None = None


def differences(known: ExpectedSinkState, found: SinkState) -> list[SinkDifference]:
    """Return the differences between the sink and the state in which the ledger left it; empty if a run may continue.

    Properties that the ledger does not know yet are not compared. A target that has the known identity may have moved
    to another location. If the location differs and the identity does not prove that it is the same target, the
    pipeline names another target. The result is then ``other_location`` alone, or empty if no batch of this pipeline
    can have left rows in the former target.

    :param known: the state in which the ledger left the sink
    :param found: the state of the sink now
    """
    if known.location is not None and known.location != found.location and not _same_target(known, found):
        return [SinkDifference.OTHER_LOCATION] if known.may_have_rows else []
    seen = {
        SinkDifference.FENCE_BELOW: known.epoch is not None and found.epoch < known.epoch,
        SinkDifference.RECEIPTS_MISSING: bool(found.missing),
        SinkDifference.RECEIPTS_UNREADABLE: found.unreadable is not None,
        SinkDifference.OTHER_TARGET: known.target is not None and found.target != known.target,
        SinkDifference.ROWS_GONE: found.loss_evidence is not None,
        SinkDifference.NOT_ACCEPTED: known.unfinished_acceptance is not None,
    }
    return [difference for difference, is_so in seen.items() if is_so]


def describe_differences(
    known: ExpectedSinkState, found: SinkState, found_differences: Iterable[SinkDifference]
) -> str:
    """Return the part of an error message that describes the differences between a sink and the ledger.

    For example: ``its fence is at epoch 3, and this ledger raised it to 5``. Several descriptions are separated by
    semicolons.

    :param known: the state in which the ledger left the sink
    :param found: the state of the sink now
    :param found_differences: the differences to describe
    """
    texts = {
        SinkDifference.FENCE_BELOW: f"its fence is at epoch {found.epoch}, and this ledger raised it to {known.epoch}",
        SinkDifference.RECEIPTS_MISSING: _missing(found.missing),
        SinkDifference.RECEIPTS_UNREADABLE: (found.unreadable or "").rstrip("."),
        SinkDifference.OTHER_TARGET: found.other_target
        or (
            f"the target is {found.target}, not {known.target}, to which this pipeline has delivered"
            if found.target is not None
            else f"the target {known.target}, to which this pipeline has delivered, does not exist any more"
        ),
        SinkDifference.ROWS_GONE: (found.loss_evidence or "").rstrip("."),
        SinkDifference.OTHER_LOCATION: f"it is {found.location}; this pipeline delivered to {known.location} so far",
        SinkDifference.NOT_ACCEPTED: (
            f"a user began to accept it (`airflow ckpt accept-sink`), but the command did not finish; at that time "
            f"{known.unfinished_acceptance.description}"
            if known.unfinished_acceptance is not None
            else ""
        ),
    }
    return "; ".join(texts[difference] for difference in found_differences)


def _same_target(known: ExpectedSinkState, found: SinkState) -> bool:
    return known.target is not None and known.target == found.target


def _missing(keys: Sequence[BatchKey]) -> str:
    if not keys:
        return ""
    first = min(keys)
    return f"{len(keys)} receipts of batches that were delivered are missing, the first of them of {first}"
