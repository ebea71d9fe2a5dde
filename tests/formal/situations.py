"""Named situations that the search must reach, since a property that is never exercised proves nothing.

Each situation belongs to the property that a defect of the core would violate there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from tests.formal.observation import Seen


class Situation(NamedTuple):
    """A situation.

    :param tests: the property that it puts to the test
    :param on: it can only come about with one of these: a question, an action, or a kind of event
    :param met: how to know it
    """

    name: str
    tests: str
    on: frozenset[str] = frozenset()
    met: Callable[[Seen], bool] = lambda _: False


def _behind(partition: Partition, *states: BatchState, started: bool | None = None) -> bool:
    """Return whether something resolved waits behind a batch in one of the states."""
    last = max((b.range.start for b in partition.pending_acks.values()), default=-1)
    return any(
        b.state in states and b.range.start < last and started in (None, b.started) for b in partition.batches.values()
    )


def _on(*names: str) -> frozenset[str]:
    return frozenset(names)


def _keys(seen: Seen) -> Sequence[BatchKey]:
    """Return the batches that an action names."""
    return getattr(seen.arguments, "batches", ())


def _beyond_watermark(partition: Partition) -> bool:
    watermark = partition.cancellation_watermark
    return watermark is not None and any(seq > watermark for seq in partition.pending_acks)


def _resolved_while(state: BatchState) -> Callable[[Seen], bool]:
    def met(seen: Seen) -> bool:
        acked = [event.seq for event in seen.events if event.kind == "acked"]
        return any(seq in seen.before.batches and seen.before.batches[seq].state is state for seq in acked)

    return met


def _told_to_reject_but_delivered(seen: Seen) -> bool:
    return any(
        event.kind == "acked"
        and event.detail["verdict"] == Verdict.DELIVERED
        and event.seq is not None
        and seen.before.batches[event.seq].instruction == "reject"
        for event in seen.events
    )


def _another_range(seen: Seen) -> bool:
    return any(
        event.kind == "receipt_imported"
        and event.seq in seen.before.batches
        and list(event.detail["range"])
        != [seen.before.batches[event.seq].range.start, seen.before.batches[event.seq].range.end]
        for event in seen.events
    )


def _overlapping(seen: Seen) -> bool:
    imported = [Range(*event.detail["range"]) for event in seen.events if event.kind == "receipt_imported"]
    resolved = [batch.range for batch in seen.before.pending_acks.values()]
    return any(one.overlaps(other) for one in imported for other in resolved)


SITUATIONS: Sequence[Situation] = (
    Situation(
        "one receipt moves the checkpoint over several batches",
        "CheckpointNeverAheadOfTerminalizedPrefix",
        _on("take"),
        lambda seen: len(seen.before.batches) - len(seen.after.batches) > 1,
    ),
    Situation(
        "a receipt waits behind an earlier batch in flight",
        "CheckpointOrderingInvariant",
        _on("take"),
        lambda seen: _behind(seen.after, BatchState.IN_FLIGHT),
    ),
    Situation(
        "a receipt waits behind a batch whose attempt ended without a verdict",
        "UnresolvedWorkNotCommittedPast",
        _on("take"),
        lambda seen: _behind(seen.after, BatchState.PLANNED, started=True),
    ),
    Situation(
        "a receipt waits behind work that was planned and never begun",
        "PlannedWorkVisibleToCheckpoint",
        _on("take"),
        lambda seen: _behind(seen.after, BatchState.PLANNED, started=False),
    ),
    Situation(
        "the checkpoint moves a second time in one generation",
        "CommittedMonotonic",
        _on("checkpoint"),
        lambda seen: seen.before.committed > seen.before.base,
    ),
    Situation(
        "the checkpoint reaches the plan's end",
        "CommittedNeverAheadOfPlanned",
        _on("checkpoint"),
        lambda seen: seen.after.committed == seen.after.planned_end,
    ),
    Situation(
        "a second receipt of a resolved batch comes in", "NoDoubleComplete", _on("ack_duplicate"), lambda _: True
    ),
    Situation(
        "what was sent at most once is confirmed by its receipt",
        "NoDoubleComplete",
        _on("acked"),
        _resolved_while(BatchState.SENT),
    ),
    Situation(
        "a stop is refused while work is in flight",
        "DrainCompleteness",
        _on("stop"),
        lambda seen: seen.refused and seen.before.phase is Phase.DRAINING and bool(seen.before.in_flight),
    ),
    Situation(
        "a pipeline stops over work planned and held",
        "DrainCompleteness",
        _on("stop"),
        lambda seen: (
            not seen.refused
            and {BatchState.PLANNED, BatchState.HELD} <= {batch.state for batch in seen.after.batches.values()}
        ),
    ),
    Situation(
        "a plan is refused while draining",
        "NoPlanAfterDrain",
        _on("plan"),
        lambda seen: seen.refused and seen.before.phase is Phase.DRAINING,
    ),
    Situation(
        "a begin is refused while draining",
        "DrainMeansNoNewSending",
        _on("begin"),
        lambda seen: seen.refused and seen.before.phase is Phase.DRAINING,
    ),
    Situation(
        "a forced stop abandons an attempt",
        "ForceStopAbandonsAllInFlight",
        _on("force_stop"),
        lambda seen: "abandoned" in seen.kinds,
    ),
    Situation(
        "an attempt ends without a verdict while later work is resolved",
        "FailureTerminalizationPreservesCheckpoint",
        _on("failed", "abandoned", "not_attempted", "died_alone"),
        lambda seen: bool(seen.after.pending_acks) and not seen.moved,
    ),
    Situation(
        "nothing waits, and all that was planned is committed",
        "QuiescenceHasNoSilentStrandedWork",
        _on("checkpoint"),
        lambda seen: not seen.after.batches and seen.after.committed == seen.after.planned_end,
    ),
    Situation(
        "all that waits is a gap that an import left",
        "QuiescenceHasNoSilentStrandedWork",
        _on("receipt_imported"),
        lambda seen: bool(seen.after.gaps()) and not seen.after.blocking,
    ),
    Situation(
        "a held batch holds back resolved work",
        "HeldTransitionsDoNotCommit",
        _on("held"),
        lambda seen: _behind(seen.after, BatchState.HELD),
    ),
    Situation(
        "a batch is released with resolved work behind it",
        "HeldTransitionsDoNotCommit",
        _on("released"),
        lambda seen: _behind(seen.before, BatchState.HELD),
    ),
    Situation(
        "a late receipt resolves a held batch",
        "HeldTransitionsDoNotCommit",
        _on("acked"),
        _resolved_while(BatchState.HELD),
    ),
    Situation(
        "resolved work lies beyond the cancellation watermark",
        "CancellationWatermarkBlocks",
        _on("take", "cancelled"),
        lambda seen: _beyond_watermark(seen.after),
    ),
    Situation(
        "the cancellation watermark outlives a takeover",
        "CancellationWatermarkBlocks",
        _on("reconcile"),
        lambda seen: _beyond_watermark(seen.before) and _beyond_watermark(seen.after),
    ),
    Situation(
        "two batches are cancelled, and the earliest counts",
        "CancellationWatermarkBlocks",
        _on("cancelled"),
        lambda seen: sum(batch.cancelled for batch in seen.after.batches.values()) > 1,
    ),
    Situation(
        "a gap is planned again",
        "RangesTileTheSource",
        _on("planned"),
        lambda seen: seen.arguments[0] < seen.before.planned_end,
    ),
    Situation(
        "an imported receipt overlaps what is resolved already",
        "RangesTileTheSource",
        _on("receipt_imported"),
        _overlapping,
    ),
    Situation(
        "a receipt with another range than the batch's is imported",
        "ReceiptMatchesBatch",
        _on("receipt_imported"),
        _another_range,
    ),
    Situation(
        "receipts with dead letters and filtered records are merged",
        "SumIdentity",
        _on("checkpoint"),
        lambda seen: any(r.counts.dead_lettered and r.counts.filtered and r.batches > 1 for r in seen.passed),
    ),
    Situation("a lane of an older epoch is shut out by the fence", "NoCommitByStaleEpoch"),
    Situation("a lane claims between the takeover and its fence", "NoCommitByStaleEpoch"),
    Situation("a run refuses a sink that was set back", "SinkLossIsTold"),
    Situation("a command of an older epoch is refused", "NoCommitByStaleEpoch"),
    Situation("a lease is granted to its own owner", "NoCommitByStaleEpoch"),
    Situation("a lease is granted after it expired", "NoCommitByStaleEpoch"),
    Situation("a lease is granted after its owner died", "NoCommitByStaleEpoch"),
    Situation("a lease is granted by force", "NoCommitByStaleEpoch"),
    Situation("a lease that is held is refused to others", "NoCommitByStaleEpoch"),
    Situation("an open attempt of an older epoch is fenced", "NoCommitByStaleEpoch", _on("fenced"), lambda _: True),
    Situation("a lane finds the verdict that another attempt claimed", "AtMostOneVerdictPerBatch"),
    Situation(
        "skipping is refused to a batch that was begun",
        "AtMostOneVerdictPerBatch",
        _on("skip_begun"),
        lambda seen: seen.refused,
    ),
    Situation(
        "a batch told to reject turns out delivered",
        "NeverDeliveredAndDeadLettered",
        _on("acked"),
        _told_to_reject_but_delivered,
    ),
    Situation(
        "numbers move past an imported receipt",
        "PartitionOrderKept",
        _on("receipt_imported"),
        lambda seen: seen.after.next_seq > seen.before.next_seq,
    ),
    Situation(
        "a rewind ends a generation with unresolved and resolved work",
        "CommittedMonotonic",
        _on("rewound"),
        lambda seen: bool(seen.before.blocking) and bool(seen.before.pending_acks),
    ),
    Situation(
        "a receipt of a generation that a rewind ended changes nothing",
        "DeliveredOnceInAGeneration",
        _on("reconcile"),
        lambda seen: any(receipt.key.generation < seen.before.generation for receipt in seen.arguments[0]),
    ),
    Situation(
        "a forgotten rewind is made up for",
        "ReconcilingSettlesEveryReceipt",
        _on("reconcile"),
        lambda seen: "rewound" in seen.kinds,
    ),
    Situation(
        "two forgotten rewinds are made up for",
        "ReconcilingSettlesEveryReceipt",
        _on("reconcile"),
        lambda seen: [event.kind for event in seen.events].count("rewound") == 2,
    ),
    Situation(
        "a forgotten rewind went back below the checkpoint",
        "EveryCommittedPositionIsAccountedFor",
        _on("reconcile"),
        lambda seen: "rewound" in seen.kinds and seen.after.base < seen.before.committed,
    ),
    Situation(
        "a side partition is delivered to its end",
        "DeliveredOnceInAGeneration",
        _on("checkpoint"),
        lambda seen: seen.after.committed == seen.after.limit,
    ),
    Situation(
        "an action is refused because its generation has ended",
        "AnActIsForItsOwnGeneration",
        _on("hold", "skip", "release", "cancel"),
        lambda seen: seen.refused and any(key.generation < seen.before.generation for key in _keys(seen)),
    ),
    Situation(
        "an action on several batches is refused for one of them",
        "RefusalChangesNothing",
        _on("hold", "skip", "release", "cancel"),
        lambda seen: seen.refused and len(_keys(seen)) > 1 and bool(seen.before.blocking),
    ),
)
"""All of them; those without a condition are known to the search itself."""
