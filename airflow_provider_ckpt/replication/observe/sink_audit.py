"""Audit a pipeline's sink: compare its receipts, dead letters and rows with the ledger.

The comparison takes no lease and changes nothing. A verdict is written to the sink before it is recorded in the ledger.
The ledger is read first, so every verdict in the ledger must be in the sink; a verdict that only the sink has is no
difference if a run can still record it in the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

from airflow_provider_ckpt.connectors.sink_protocol import FileBasedSink, Sink, unwrapped
from airflow_provider_ckpt.core.changed_sink import SinkDifference, describe_differences
from airflow_provider_ckpt.core.changed_sink import differences as find_differences
from airflow_provider_ckpt.core.dead_letters import AttemptKey, attempt_of
from airflow_provider_ckpt.core.sink_audit import (
    Difference,
    DifferenceKind,
    compare_dead_letters,
    compare_receipts,
    compare_rows,
    compare_target_files,
    knows_batch,
)
from airflow_provider_ckpt.replication.run.file_lists import compare_files
from airflow_provider_ckpt.replication.run.refuse_changed_sink import compare_states
from airflow_provider_ckpt.replication.setup import PipelineContext

STEPS = 4
"""Number of times that :func:`audit_sink` reports its progress."""


def audit_sink(setup: PipelineContext, tell: Callable[[str], None], *, shared: bool = False) -> dict[str, Any]:
    """Compare the sink with the ledger; return the numbers that were compared and the differences, JSON-ready.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param tell: called with a line of progress after each of :data:`STEPS` steps
    :param shared: whether other writers write to the target too, so that its rows are not compared
    :raises ConfigError: if the ledger does not know the pipeline
    :raises SinkError: if the sink cannot be read
    """
    name = setup.pipeline.name
    recorded = setup.ledger.ledger_snapshot(name)
    tell(f"{len(recorded.passed) + len(recorded.batches):,} batches and range receipts in the ledger")
    with closing(setup.open_sink()) as sink:
        changed = _changed_sink(setup, sink)
        receipts = list(sink.receipts({}))
        tell(f"{len(receipts):,} receipts in the sink")
        found = compare_receipts(recorded, receipts)
        named = [
            receipt
            for receipt in found.settled
            if receipt.counts.dead_lettered or attempt_of(receipt) in recorded.dead_letters
        ]
        stored_counts: Counter[AttemptKey] = Counter(
            dead_letter.source for dead_letter in sink.dead_letters(map(attempt_of, named))
        )
        tell(f"{stored_counts.total():,} dead letters in the sink")
        differences = [*changed, *found.differences, *compare_dead_letters(recorded, named, stored_counts)]
        differences += compare_files(setup, sink)
        delivered = sum(receipt.counts.delivered for receipt in receipts)
        accepted = recorded.accepted
        reason = _why_not_counted(setup, shared=shared, busy=recorded.busy)
        if accepted.rows_missing is None:
            reason = reason or "its rows could not be counted when a user accepted it"
        rows = None if reason else sink.target_rows(exact=True)
        if rows is None:
            tell("rows of the target: unknown")
        else:
            tell(f"{rows:,} rows in the target")
            differences += compare_rows(rows, delivered, accepted.rows_missing or 0)
        if isinstance(opened := unwrapped(sink), FileBasedSink):
            differences += compare_target_files(opened.damaged_files())
    if any(difference.kind is DifferenceKind.RECEIPT_UNKNOWN for difference in differences):
        differences = _without_newly_settled(setup, differences, {receipt.key: receipt for receipt in receipts})
    return {
        "agrees": not differences,
        "compared": {
            "receipts": len(found.settled),
            "not_settled_yet": [str(receipt.key) for receipt in found.unsettled],
            "of_a_past_not_kept": len(found.collected),
            "dead_letters": stored_counts.total(),
            "delivered": delivered,
            "target_rows": rows,
            "target_rows_unknown": None if rows is not None else reason or "this sink cannot count its target",
        },
        "accepted_losses": accepted.to_json(),
        "differences": [_document(difference) for difference in differences],
    }


def _changed_sink(setup: PipelineContext, sink: Sink) -> list[Difference]:
    """Return one difference if the sink's fence, target or location is not as the ledger has it, else an empty list.

    Missing receipts are left out, since :func:`audit_sink` reports them one by one.

    :param setup: the pipeline with its ledger
    :param sink: the pipeline's sink, open
    """
    known, state = compare_states(setup.ledger, setup.pipeline.name, sink)
    found_differences = [
        difference for difference in find_differences(known, state) if difference is not SinkDifference.RECEIPTS_MISSING
    ]
    return (
        [Difference(DifferenceKind.SINK_CHANGED, "", None, describe_differences(known, state, found_differences))]
        if found_differences
        else []
    )


def _why_not_counted(setup: PipelineContext, *, shared: bool, busy: bool) -> str | None:
    """Return the reason why the number of the target's rows cannot be compared with the receipts; None if it can.

    An example is ``others write to the target too``.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param shared: whether other writers write to the target too
    :param busy: whether a run holds the lease
    """
    if shared:
        return "others write to the target too"
    if setup.pipeline.sink.upserts:
        return "rows replace rows with the same key, so the target holds fewer than were delivered"
    if setup.pipeline.sink.may_store_other_rows:
        return "the target may store other rows than it is sent (sink.rows_may_differ)"
    if setup.pipeline.sink.replaces is not None:
        return "each run replaces the rows of the one before (sink.mode: replace)"
    if setup.pipeline.sink.may_lose_rows:
        return "the target may be emptied (sink.may_be_emptied)"
    return "a run is at work" if busy else None


def _without_newly_settled(
    setup: PipelineContext, differences: list[Difference], receipts: dict[Any, Any]
) -> list[Difference]:
    """Read the ledger again, and return the differences without receipts that the ledger knows by now.

    While the sink was read, a run may have settled batches whose receipts the ledger did not know before.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param differences: differences that were found
    :param receipts: the sink's receipts, by the key of their batch
    """
    now = setup.ledger.ledger_snapshot(setup.pipeline.name)
    return [
        difference
        for difference in differences
        if difference.kind is not DifferenceKind.RECEIPT_UNKNOWN or not knows_batch(now, receipts[difference.batch])
    ]


def _document(difference: Difference) -> dict[str, Any]:
    """Return a difference as a JSON-ready dict."""
    return {
        "kind": difference.kind.value,
        "partition": difference.partition,
        "batch": str(difference.batch) if difference.batch else None,
        "message": difference.message,
        "to_do": difference.to_do,
    }
