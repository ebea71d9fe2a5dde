"""Build the rows of the audit log from the events that ``core`` reports.

Routine transitions of batches (planned, begun, delivered, not attempted) are only counted in one summary row per
command, so that the log grows with the number of runs and not of batches. All other events get a row of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.types import Lease

_ROUTINE = frozenset({"planned", "begun", "acked", "ack_duplicate", "not_attempted"})
_VERDICT_KINDS = {Verdict.REJECTED.value: "rejected", Verdict.VOID.value: "skipped"}


def event_row(lease: Lease, at: datetime, kind: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the audit log for an event that concerns the whole pipeline.

    :param lease: lease whose pipeline, owner and epoch are stored
    :param at: time of the event
    :param kind: kind of the event
    :param detail: JSON-ready detail
    """
    return {
        "pipeline": lease.pipeline,
        "at": at,
        "kind": kind,
        "actor": lease.owner,
        "epoch": lease.epoch,
        "generation": None,
        "partition": None,
        "seq": None,
        "detail": dict(detail),
    }


def refusal_row(pipeline: str, owner: str, at: datetime, error: str) -> dict[str, Any]:
    """Return the row of the audit log for a run that was refused before it held the lease.

    :param pipeline: name of the pipeline
    :param owner: owner of the lease that the run wanted
    :param at: time of the event
    :param error: the error with which the run was refused
    """
    return {
        "pipeline": pipeline,
        "at": at,
        "kind": "run_refused",
        "actor": owner,
        "epoch": None,
        "generation": None,
        "partition": None,
        "seq": None,
        "detail": {"error": error},
    }


def event_rows(lease: Lease, at: datetime, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return a row of the audit log for each event that is not routine; routine events are left out.

    :param lease: lease whose pipeline, owner and epoch are stored
    :param at: time of the events
    :param events: events that ``core`` reported
    """
    rows = []
    for event in events:
        kind = event.kind
        if kind == "acked":
            kind = _VERDICT_KINDS.get(event.detail["verdict"], kind)
        if kind not in _ROUTINE:
            position = {"generation": event.generation, "partition": event.partition or None, "seq": event.seq}
            rows.append(event_row(lease, at, kind, event.detail) | position)
    return rows


def count_kinds(events: Iterable[Event]) -> dict[str, int]:
    """Return the number of events of each kind, such as ``{"acked": 12, "checkpoint": 1}``."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event.kind] = totals.get(event.kind, 0) + 1
    return totals


def merged_ranges(items: Iterable[Batch | Receipt]) -> dict[str, list[list[int]]]:
    """Return the ranges of batches or receipts, adjacent ones merged, by partition: ``{"orders-0": [[0, 50], …]}``."""
    by_partition: dict[str, list[list[int]]] = {}
    for item in items:
        by_partition.setdefault(item.key.partition, []).append([item.range.start, item.range.end])
    return {name: _merge(ranges) for name, ranges in sorted(by_partition.items())}


def _merge(ranges: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def sum_counts(counts: Iterable[Counts]) -> dict[str, int]:
    """Return the sums of record counts by kind: ``read``, ``delivered``, ``filtered`` and ``dead_lettered``."""
    items = list(counts)
    return {
        "read": sum(c.read for c in items),
        "delivered": sum(c.delivered for c in items),
        "filtered": sum(c.filtered for c in items),
        "dead_lettered": sum(c.dead_lettered for c in items),
    }
