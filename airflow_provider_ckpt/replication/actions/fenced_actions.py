"""People's acts that need sink or source: rewind, force stop, recovery, and adopting another ledger's receipts.

Semantics, sections 2 to 4. Each acquires under a new epoch, fences and reconciles like a run, acts, and releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.protocols import Alarm, Unread, WatchedSource
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.recovery import Missing, Why, outside
from airflow_provider_ckpt.replication import owner as owners
from airflow_provider_ckpt.replication.actions.late_records import Receipts, unread_by
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.setup import Opened, Setup

_MOST_SPANS = 500
"""Stretches of late records that are read again at a time; each is a partition and a batch of its own."""

_END = 2**63
"""End of a stretch that has none."""

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import Source
    from airflow_provider_ckpt.core.batch import BatchKey
    from airflow_provider_ckpt.ledger.types import ActResult, PartitionRecord


def carry_out(setup: Setup, act: Act, *, who: str, why: str | None, proposal: str | None = None) -> ActResult:
    """Carry out an act behind the sink's fence.

    A force stop takes the lease from whoever holds it; anything else waits for it as the pipeline's ``lease`` says.

    :param who: the person
    :param why: the reason; kept in the audit trail
    :param proposal: id of the approved proposal that this uses up
    :raises LeaseBusyError: if a run holds the lease; the act was not stored
    :raises LedgerStateError: if the act does not fit; nothing was changed
    """
    force = act.kind is ActKind.FORCE_STOP
    with acquire(setup, force=force) as run:
        result = setup.ledger.act_under(run.lease, act, who=who, why=why, proposal=proposal)
        setup.ledger.release(run.lease)
    return result


def carry_out_or_store(setup: Setup, act: Act, *, who: str, why: str | None, proposal: str | None = None) -> ActResult:
    """Carry out an act behind the sink's fence, or while a run holds the lease store it for that one or the next.

    :param proposal: id of the approved proposal that this uses up
    :raises LedgerStateError: if the act does not fit; nothing was changed
    """
    if owners.is_held(setup.ledger.status(setup.pipeline.name)["lease"]):
        return setup.ledger.act(setup.pipeline.name, act, who=who, why=why, proposal=proposal)
    return carry_out(setup, act, who=who, why=why, proposal=proposal)


def position_of_batch(setup: Setup, key: BatchKey) -> dict[str, int]:
    """Where a batch of the past begins, by its receipt in the sink: ``{partition: position}``, as rewind takes it.

    :raises ConfigError: if the sink holds no such receipt (any more)
    """
    opened = Opened(setup)
    try:
        for receipt in opened.sink.receipts({}):
            if receipt.key == key:
                return {key.source: receipt.range.start}
    finally:
        opened.close()
    raise ConfigError(
        f"the sink holds no receipt of {key}.",
        pipeline=setup.pipeline.name,
        batch=str(key),
        hint="Rewind to a position or a time instead.",
    )


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """What nothing accounts for.

    :param found: all of it
    :param wanted: what is read again, at least in part
    :param left: what is not, at least in part
    :param act: has it read again, and ends the source's alarms that this accounts for; None if there is neither
    :param alarms: those that it does not end: by partition, what was seen, why it stays and what ends it
    """

    found: Sequence[Missing]
    wanted: Sequence[Missing]
    left: Sequence[Missing]
    act: Act | None
    alarms: Sequence[Mapping[str, str]] = ()

    def open(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the act does not settle, JSON-ready."""
        return {"left": [item.to_json() for item in self.left], "alarms": [dict(item) for item in self.alarms]}


def missing(setup: Setup) -> Unaccounted:
    """Find what is unaccounted for above the low watermark; asks source and sink, and changes nothing.

    While the source raises an alarm, no receipt is too young to be compared.
    """
    pipeline = setup.pipeline
    records = setup.ledger.partitions(pipeline.name)
    opened = Opened(setup)
    try:
        unread = unread_by(setup, opened.source, opened.sink, records)
        alarms = _watched(opened.source, records, unread)  # before the look, so that what comes after it is told again
        window = pipeline.recovery.window if opened.source.late() else None
        found = setup.ledger.recovery_plan(
            pipeline.name,
            settle_lag=timedelta(0) if alarms else pipeline.recovery.settle_lag,
            window=window,
            shown=Receipts(opened.source, opened.sink, records).shown,
        )
    finally:
        opened.close()
    wanted = [item for item in found if item.range.end <= records[item.partition].partition.committed]
    if pipeline.sink.mode == "upsert":
        again = {name: [Range(records[name].low, _END)] for name in {item.partition for item in wanted}}
        staying = {name: _staying(alarm, again.get(name, ()), ()) for name, alarm in alarms.items()}
        wanted = [item for item in wanted if not staying.get(item.partition)]  # a rewind would end the alarm
        left = [item for item in found if item not in wanted]
        act = Act(ActKind.REWIND, positions={item.partition: records[item.partition].low for item in wanted})
    else:
        spans = [(item.partition, span) for item in wanted for span in _spans(item)][:_MOST_SPANS]
        named = {(name, span) for name, span in spans}
        wanted = [item for item in wanted if any((item.partition, span) in named for span in _spans(item))]
        left = [
            item
            for item in found
            if not (item.told_apart and all((item.partition, span) in named for span in _spans(item)))
        ]
        act = Act(ActKind.RECOVER, spans=tuple(spans))
        staying = {
            name: _staying(
                alarm,
                [span for of, span in spans if of == name],
                [item.range for item in left if item.partition == name],
            )
            for name, alarm in alarms.items()
        }
    states = {
        name: alarm.state
        for name, alarm in alarms.items()
        if not staying[name] and name not in act.positions and any(told.rows for told in alarm.told)
    }
    if not wanted:
        act = Act(ActKind.RECOVER)
    if act.kind is ActKind.RECOVER:
        act = replace(act, states=states)
    return Unaccounted(found, wanted, left, act if wanted or states else None, _open(pipeline.name, alarms, staying))


def _staying(alarm: Alarm, again: Sequence[Range], left: Sequence[Range]) -> dict[str, str]:
    """Return why an alarm cannot be ended by reading some ranges again, by what was seen; empty if it can.

    :param alarm: the alarm
    :param again: the ranges that are read again
    :param left: ranges of the same partition that are unaccounted for and are not read again as a whole
    """
    found: dict[str, str] = {}
    for told in alarm.told:
        if told.rows is None:
            found[told.seen] = "positions were given out again, or too many rows came to be compared"
        elif beyond := outside(told.rows, again):
            found[told.seen] = (
                f"rows in {len(beyond)} stretches, the first of them {beyond[0]}, are not read again by this: they lie "
                "below the low watermark, or where rows were read before, or cannot be told from those"
            )
        elif left and told.rows:
            found[told.seen] = f"nobody can tell which rows of {left[0]} came late, so they are left"
    return found


def _open(
    pipeline: str, alarms: Mapping[str, Alarm], staying: Mapping[str, Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return what was seen and goes on failing runs, each with why that is so and what ends it."""
    rewind = (
        f"airflow ckpt rewind {pipeline} --to-position N --reason …, N at or below the first of these rows; or, if you "
        "know that nothing of them is to be delivered, one run with source.late_rows: recover"
    )
    found: list[Mapping[str, str]] = []
    for name, alarm in alarms.items():
        for told in alarm.told:
            first = f"first {told.first}" if told.first else ""
            if why := staying[name].get(told.seen):
                ends = f"{first}; then {rewind}" if first else rewind
                found.append({"partition": name, "seen": told.seen, "why": why, "ended_by": ends})
            elif not told.rows:
                found.append({"partition": name, "seen": told.seen, "why": "it lasts", "ended_by": first})
    return found


def _spans(item: Missing) -> Sequence[Range]:
    """Return the ranges of a missing stretch that can be read again without delivering any record twice."""
    return [item.range] if item.why is Why.UNRECEIPTED else item.spans


def recover(setup: Setup, *, dry_run: bool, who: str, why: str | None = None) -> dict[str, Any]:
    """Find what is unaccounted for above the low watermark, and have it read again (Wave's recovery).

    Records that turned up late are read by their positions: just those at which nothing was read before, so that a sink
    that appends gets none twice. What cannot be told apart is listed. For an upsert sink the partition is rewound to
    its low watermark: the records by themselves would put back older versions of those whose newer ones came from
    beyond them, and a generation that began there would not know what turns up late below it.

    It also ends the alarm of a source that positions below the checkpoint were given out, if all the rows that the
    source speaks of are read by this, and nothing of that partition is left. Else the alarm stays, and ``alarms`` says
    why, and what ends it; an upsert sink's partition is not rewound then, since that would end it, too.

    :param dry_run: find, and ask for nothing
    :returns: what is missing, what became of it, and what is left for a person; JSON-ready
    """
    unaccounted = missing(setup)
    act = unaccounted.act
    result = None
    if act is not None and not dry_run:
        result = carry_out_or_store(setup, act, who=who, why=why or "recovery of what is unaccounted for")
    return {
        "pipeline": setup.pipeline.name,
        "dry_run": dry_run,
        "missing": [item.to_json() for item in unaccounted.found],
        "to_be_read_again": [item.to_json() for item in unaccounted.wanted],
        "rewinds_to": dict(act.positions) if act is not None else {},
        "applied": result is not None and result.applied,
        "intent": None if result is None else result.intent,
        **unaccounted.open(),
    }


def _watched(source: Source, records: Mapping[str, PartitionRecord], unread: Unread) -> dict[str, Alarm]:
    """Return why the next planning would fail, by partition; only partitions for which it would are included."""
    if not isinstance(source, WatchedSource):
        return {}
    found = {
        name: source.watch(name, record.partition.planned_end, record.state, unread)
        for name, record in records.items()
        if record.partition.limit is None
    }
    return {name: alarm for name, alarm in found.items() if alarm is not None}


def adopt(setup: Setup, ledger_id: str, *, who: str, why: str) -> None:
    """Go on where another ledger left off: its receipts in the sink are this pipeline's own from now on.

    The next run imports them, so what they speak of is not sent again. The other ledger, should it still run, is fenced
    then.

    :param ledger_id: the other ledger's id, as the refusal of a run names it
    :raises ConfigError: if the sink holds nothing under this id
    """
    opened = Opened(setup)
    try:
        claims = opened.sink.claims()
    finally:
        opened.close()
    if setup.sink_id in claims.ledgers - {ledger_id}:
        raise ConfigError(
            f"the sink holds receipts of this pipeline under {setup.sink_id} already; two histories cannot become one.",
            pipeline=setup.pipeline.name,
            hint="Give this pipeline another name or target.",
        )
    if ledger_id not in claims.ledgers:
        raise ConfigError(
            f"the sink holds no receipts of ledger {ledger_id} for this pipeline.",
            pipeline=setup.pipeline.name,
            hint=f"It holds those of: {', '.join(sorted(claims.ledgers)) or 'none'}.",
        )
    ledger = setup.ledger
    terms = setup.pipeline.lease
    lease = ledger.acquire(setup.pipeline.name, setup.owner, terms.ttl, at_least=claims.epoch, is_dead=owners.is_dead)
    try:
        ledger.adopt(lease, ledger_id, who=who, why=why)
    finally:
        ledger.release(lease)
