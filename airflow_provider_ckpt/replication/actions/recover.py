"""Recover records above the low watermark that were never read: find their ranges, and have them read.

A recovery also decides which alarms of the source it ends (semantics, section 5). A source raises an alarm, which makes
planning fail, when it notices that positions below the checkpoint were assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.source_plan import FindUnreceipted
from airflow_provider_ckpt.connectors.source_protocol import PlanningAlarm, WatchedSource
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.recovery import MissingRange, MissingReason, not_covered
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from airflow_provider_ckpt.replication.run.late_records import Receipts, unread_finder
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import Source
    from airflow_provider_ckpt.ledger.types import PartitionRecord

_MAX_RANGES = 500
"""Maximum number of ranges of late records that one recovery reads; each becomes a side partition."""

_NO_END = 2**63
"""End of a range that is open at its end, above all positions."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Ranges with records that are unaccounted for, and the action that reads these records.

    Records are unaccounted for if no receipt counts them. Some cannot be distinguished from records that were read.

    :param found: all such ranges
    :param to_read: ranges that the action reads, at least in part
    :param remaining: ranges that the action does not read, or not completely
    :param action: action that reads ``to_read``. It also ends the alarm of a partition if it reads all late rows
        of the partition and leaves none of its ranges unaccounted for. None if there is nothing to do
    :param alarms: alarms that the action does not end, each with ``partition``, ``seen`` (what the source noticed),
        ``reason`` (why the alarm stays) and ``ended_by`` (what a user can do)
    """

    found: Sequence[MissingRange]
    to_read: Sequence[MissingRange]
    remaining: Sequence[MissingRange]
    action: Action | None
    alarms: Sequence[Mapping[str, str]] = ()

    def open(self) -> dict[str, list[dict[str, Any]]]:
        """Return the lists ``left`` and ``alarms``, JSON-ready: ranges and alarms that the action does not settle."""
        return {"left": [item.to_json() for item in self.remaining], "alarms": [dict(item) for item in self.alarms]}


def find_unaccounted(setup: PipelineContext) -> Unaccounted:
    """Compare receipts with the source, and return ranges above the low watermark with undelivered records.

    Nothing is changed. Receipts younger than ``recovery.settle_lag`` are compared only while the source raises an
    alarm.

    :param setup: the pipeline with its ledger and connections
    """
    pipeline = setup.pipeline
    records = setup.ledger.partitions(pipeline.name)
    opened = OpenConnectors(setup)
    try:
        unread = unread_finder(setup, opened.source, opened.sink, records)
        alarms = _load_alarms(
            opened.source, records, unread
        )  # taken before the source is read, so that the next planning reports what appears after it
        window = pipeline.recovery.window if opened.source.may_have_late_records() else None
        found = setup.ledger.recovery_plan(
            pipeline.name,
            settle_lag=timedelta(0) if alarms else pipeline.recovery.settle_lag,
            window=window,
            compare=Receipts(opened.source, opened.sink, records).unread_records,
        )
    finally:
        opened.close()
    wanted = [item for item in found if item.range.end <= records[item.partition].partition.committed]
    if pipeline.sink.upserts:
        reread_ranges = {
            name: [Range(records[name].low_watermark, _NO_END)] for name in {item.partition for item in wanted}
        }
        staying = {name: _remaining_alarms(alarm, reread_ranges.get(name, ()), ()) for name, alarm in alarms.items()}
        wanted = [item for item in wanted if not staying.get(item.partition)]  # a rewind would also end the alarm
        left = [item for item in found if item not in wanted]
        action = Action(
            ActionKind.REWIND, positions={item.partition: records[item.partition].low_watermark for item in wanted}
        )
    else:
        ranges = [(item.partition, span) for item in wanted for span in _readable_ranges(item)][:_MAX_RANGES]
        named = {(name, span) for name, span in ranges}
        wanted = [item for item in wanted if any((item.partition, span) in named for span in _readable_ranges(item))]
        left = [
            item
            for item in found
            if not (item.readable_alone and all((item.partition, span) in named for span in _readable_ranges(item)))
        ]
        action = Action(ActionKind.RECOVER, ranges=tuple(ranges))
        staying = {
            name: _remaining_alarms(
                alarm,
                [span for of, span in ranges if of == name],
                [item.range for item in left if item.partition == name],
            )
            for name, alarm in alarms.items()
        }
    states = {
        name: alarm.state
        for name, alarm in alarms.items()
        if not staying[name]
        and name not in action.positions
        and any(evidence.late_ranges for evidence in alarm.evidence)
    }
    if not wanted:
        action = Action(ActionKind.RECOVER)
    if action.kind is ActionKind.RECOVER:
        action = replace(action, states=states)
    return Unaccounted(
        found, wanted, left, action if wanted or states else None, _describe_remaining(pipeline.name, alarms, staying)
    )


def _remaining_alarms(alarm: PlanningAlarm, reread_ranges: Sequence[Range], left: Sequence[Range]) -> dict[str, str]:
    """Return those observations of an alarm that the action does not settle by the ranges it reads, with the reasons.

    :param alarm: the alarm
    :param reread_ranges: ranges that the action reads
    :param left: ranges of the same partition that are unaccounted for and that the action does not read as a whole
    :return: for the description of each such observation, the reason; empty if the whole alarm ends
    """
    found: dict[str, str] = {}
    for evidence in alarm.evidence:
        if evidence.late_ranges is None:
            found[evidence.description] = "positions were assigned again, or there are too many new rows to compare"
        elif beyond := not_covered(evidence.late_ranges, reread_ranges):
            found[evidence.description] = (
                f"this does not read the rows in {len(beyond)} ranges, the first of them {beyond[0]}: they lie below "
                "the low watermark, or cannot be distinguished from rows that were read before"
            )
        elif left and evidence.late_ranges:
            found[evidence.description] = f"it is unknown which rows of {left[0]} came late, so this reads none of them"
    return found


def _describe_remaining(
    pipeline: str, alarms: Mapping[str, PlanningAlarm], staying: Mapping[str, Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return the alarms that continue to fail runs after the action, each with the reason and the way to end it.

    :param pipeline: name of the pipeline, for the commands to run
    :param alarms: alarms by partition
    :param staying: by partition, the result of :func:`_remaining_alarms`
    """
    rewind = (
        f"airflow ckpt rewind {pipeline} --to-position N --reason …, with N at or below the first of these rows; or, "
        "if you know that none of them need to be delivered, one run with source.late_rows: recover"
    )
    found: list[Mapping[str, str]] = []
    for name, alarm in alarms.items():
        for evidence in alarm.evidence:
            first = f"first {evidence.first_step}" if evidence.first_step else ""
            if reason := staying[name].get(evidence.description):
                ends = f"{first}; then {rewind}" if first else rewind
                found.append({"partition": name, "seen": evidence.description, "reason": reason, "ended_by": ends})
            elif not evidence.late_ranges:
                found.append(
                    {"partition": name, "seen": evidence.description, "reason": "it persists", "ended_by": first}
                )
    return found


def _readable_ranges(item: MissingRange) -> Sequence[Range]:
    """Return the parts of a missing range that can be read without delivering any record twice.

    :param item: a range with records that are unaccounted for
    """
    return [item.range] if item.reason is MissingReason.UNRECEIPTED else item.ranges


def recover(setup: PipelineContext, *, dry_run: bool, actor: str, reason: str | None = None) -> dict[str, Any]:
    """Find records above the low watermark that no receipt accounts for, and have the next run read them.

    Late records are read by position, only where no record was read before, so that a sink that appends gets none
    twice. Records that cannot be distinguished are listed. For an upsert sink the partition is rewound to its low
    watermark: reading only the late records could overwrite rows with older versions, and a generation that began at
    them would not notice records that arrive late below it.

    A recovery also ends the source's alarm that positions below the checkpoint were assigned, if it reads all rows that
    the source names and leaves nothing of the partition unaccounted for. Otherwise the alarm stays, and ``alarms`` in
    the result gives the reason and the way to end it; an upsert sink's partition is not rewound then, since that would
    end the alarm too.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param dry_run: only find these records, and change nothing
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :returns: JSON-ready dict of the missing ranges (``missing``), those that the next run reads (``to_be_read``), the
        positions of a rewind (``rewinds_to``), the result of the action, and the ranges (``left``) and alarms
        (``alarms``) that it does not settle
    """
    unaccounted = find_unaccounted(setup)
    action = unaccounted.action
    result = None
    if action is not None and not dry_run:
        result = apply_fenced_or_store(
            setup, action, actor=actor, reason=reason or "recovery of what is unaccounted for"
        )
    return {
        "pipeline": setup.pipeline.name,
        "dry_run": dry_run,
        "missing": [item.to_json() for item in unaccounted.found],
        "to_be_read": [item.to_json() for item in unaccounted.to_read],
        "rewinds_to": dict(action.positions) if action is not None else {},
        "applied": result is not None and result.applied,
        "intent": None if result is None else result.intent,
        **unaccounted.open(),
    }


def _load_alarms(
    source: Source, records: Mapping[str, PartitionRecord], unread: FindUnreceipted
) -> dict[str, PlanningAlarm]:
    """Return the source's alarms by partition; an alarm makes the next planning of its partition fail.

    :param source: the pipeline's source
    :param records: the ledger's partitions
    :param unread: function that looks up in the receipts which of the source's records were never read
    """
    if not isinstance(source, WatchedSource):
        return {}
    found = {
        name: source.watch(name, record.partition.planned_end, record.state, unread)
        for name, record in records.items()
        if record.partition.limit is None
    }
    return {name: alarm for name, alarm in found.items() if alarm is not None}
