"""Recover records above the low watermark that were never read: find their ranges, and have the next run read them.

A recovery may also end alarms of the source (semantics, section 5). A source raises an alarm, which makes planning
fail, if it notices that new records got positions below the checkpoint.
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

    Records are unaccounted for if no receipt counts them. Some of them cannot be distinguished from records at the same
    position that were read, so the action cannot read them.

    :param found: all ranges with such records
    :param to_read: ranges of ``found`` that the action reads, at least in part
    :param remaining: ranges of ``found`` that the action does not read, or not completely
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
    """Find the ranges above the low watermark with records that were never read, by comparing receipts with the source.

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
    """Return the observations of an alarm that remain after the action, each with the reason why it remains.

    An alarm of the source consists of one or more observations, such as new rows below the checkpoint.

    :param alarm: the alarm
    :param reread_ranges: ranges that the action reads
    :param left: ranges of the same partition that are unaccounted for and that the action does not read as a whole
    :return: reason by description of the observation; empty if the whole alarm ends
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

    For a sink that appends, late records are read at positions at which no record was read before, so that no record is
    delivered twice; ranges with late records at other positions are only listed. For an upsert sink, the partition is
    rewound to its low watermark: reading only the late records could overwrite rows with older versions.

    A source raises an alarm if it notices new rows below the checkpoint. The recovery ends the alarm if it reads all of
    these rows and no other records of the partition remain unread. Otherwise the alarm stays, and ``alarms`` in the
    result gives the reason and the way to end it. A partition of an upsert sink is not rewound then, since a rewind
    would end the alarm too.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param dry_run: whether to only find these records, and change nothing
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :returns: JSON-ready dict with the missing ranges (``missing``), the ranges that the next run reads
        (``to_be_read``), the positions of a rewind (``rewinds_to``), whether the action was applied (``applied``) or
        the number under which it was stored (``intent``), and the ranges (``left``) and alarms (``alarms``) that remain
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
