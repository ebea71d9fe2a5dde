"""Expectations of the search on the core's answers, besides the named invariants in ``core/invariants.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.core.batch import RESOLVED
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.invariants import STALE_EPOCH, STATE_CHECKS, STEP_CHECKS, Violation
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.receipt import Receipt
from tests.formal import questions as q
from tests.formal.memory import TOLD
from tests.formal.observation import Seen

REFUSAL = "RefusalChangesNothing"
ACCOUNTED = "EveryCommittedPositionIsAccountedFor"
ONCE = "DeliveredOnceInAGeneration"
CAN_FINISH = "EveryStateCanFinish"
SETTLED = "ReconcilingSettlesEveryReceipt"
OPEN_ATTEMPT = "OnlyTheOpenAttemptIsEnded"
TIMELY = "NothingIsBegunBeforeItsTime"
SENT_ONCE = "SentAtMostOnce"
OWN_GENERATION = "AnActIsForItsOwnGeneration"

PROPERTIES: Sequence[str] = (
    *sorted({*STATE_CHECKS, STALE_EPOCH, *STEP_CHECKS}),
    TOLD, REFUSAL, ACCOUNTED, ONCE, CAN_FINISH, SETTLED, OPEN_ATTEMPT, TIMELY, SENT_ONCE, OWN_GENERATION,
)  # fmt: skip
"""Everything that the search checks, by name."""

_TO_BE_REFUSED: Mapping[Any, str] = {
    q.end_again: OPEN_ATTEMPT,
    q.end_closed: OPEN_ATTEMPT,
    q.begin_early: TIMELY,
    q.skip_begun: "AtMostOneVerdictPerBatch",
    q.supersede_resolved: "NoDoubleComplete",
}


def disappointments(question: q.Question, seen: Seen, *, changed: bool) -> Iterator[Violation]:
    """Return the faults of an answer that was no refusal.

    :param changed: whether the partition is in another state now
    """
    asked = question[0]
    part = seen.after
    if asked in _TO_BE_REFUSED:
        yield Violation(_TO_BE_REFUSED[asked], part.id, f"{seen.name} {question[1:2]} was not refused")
    if asked is q.take and changed and not {"acked", "receipt_imported"} & seen.kinds:
        yield Violation("NoDoubleComplete", part.id, "a receipt that is said to be no news changed the partition")
    if asked is q.reconcile:
        yield from _unsettled(part, question[1])
    if asked is q.begin and question[3] and seen.before.batches[question[1]].started:
        yield Violation(SENT_ONCE, part.id, f"{seen.before.batches[question[1]].key} is sent a second time")


def _unsettled(part: Partition, receipts: Sequence[Receipt]) -> Iterator[Violation]:
    for receipt in receipts:
        if receipt.key.generation > part.generation:
            yield Violation(SETTLED, part.id, f"{receipt.key} has a receipt, and its generation is not known")
        elif receipt.key.generation == part.generation and receipt.range.end > part.committed:
            batch = part.batches.get(receipt.key.seq)
            if batch is None or batch.state not in RESOLVED or batch.range != receipt.range:
                yield Violation(SETTLED, part.id, f"{receipt.key} {receipt.range} has a receipt and is not resolved")


def misdirected(partitions: Mapping[str, Partition], keys: Sequence[BatchKey]) -> Iterator[Violation]:
    """Batches of a generation that has ended, to which an action was applied.

    :param partitions: as they were before
    """
    for key in keys:
        if key.generation != partitions[key.partition].generation:
            yield Violation(OWN_GENERATION, key.partition, f"an action for {key} was applied to a later generation")
