"""Judge the audit log: every acknowledged command has exactly one event, and every event was requested.

A command and its event are one transaction. So if a command got no answer, its event shows whether it was carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.core.ranges import Range, merge
from tests.chaos.storm.evidence import LOST, STALE_ACCEPTED, VIOLATION, Evidence, Fault, Row
from tests.chaos.storm.journal import Entry, Expect, Is

EVENTS: Mapping[str, frozenset[str]] = {
    "acquire": frozenset({"lease_acquired", "lease_taken_over"}),
    "declare": frozenset({"declared"}),
    "start": frozenset({"partitions_started"}),
    "plan": frozenset({"planned"}),
    "begin": frozenset({"begun"}),
    "reconcile": frozenset({"reconciled"}),
    "settle": frozenset({"settled"}),
    "lost": frozenset({"lost"}),
    "cancel": frozenset({"cancel"}),
    "release": frozenset({"lease_released"}),
}
"""Events that the commands of a run store, one for each command."""

_QUIET = frozenset({"start", "release"})
"""Leave an event only where they change something."""

_TOLD = frozenset().union(*EVENTS.values())


class Trail:
    """The events of one pipeline, matched with the commands that caused them.

    ``happened`` collects the tags of the commands whose event was found; ``faults`` what does not fit.
    """

    def __init__(self, evidence: Evidence, pipeline: str) -> None:
        self.pipeline = pipeline
        self.happened: dict[str, int] = {}
        self.faults: list[Fault] = []
        events = evidence.events.get(pipeline, ())
        entries = evidence.of(pipeline)
        self._match_runs(entries, events)
        self.faults += _acts(evidence, pipeline)

    def _match_runs(self, entries: Sequence[Entry], events: Sequence[Row]) -> None:
        told: dict[int, list[Row]] = {}
        for row in events:
            if row["kind"] in _TOLD and "action" not in row["detail"]:
                told.setdefault(row["epoch"], []).append(row)
        asked: dict[int, list[Entry]] = {}
        unknown: list[Entry] = []
        for entry in entries:
            if entry.do == "acquire" and entry.unknown:
                unknown.append(entry)
            epoch = entry.result.get("epoch") if entry.do == "acquire" else entry.epoch
            if entry.do in EVENTS and epoch is not None and entry.expect is not Expect.STALE:
                asked.setdefault(epoch, []).append(entry)
        for epoch in sorted({*told, *asked}):
            self._match(asked.get(epoch, []), told.get(epoch, []), unknown)

    def _match(self, asked: Sequence[Entry], told: Sequence[Row], unknown: list[Entry]) -> None:
        """Walk both in order: an acknowledged command has the next event, one without an answer may have it."""
        at = 0
        if told and not any(entry.do == "acquire" for entry in asked):
            at = self._explain_by(unknown, told[0])
        for entry, taken in zip(asked, _taken(asked, told[at:]), strict=True):
            if taken:
                self.happened[entry.tag] = told[at]["id"]
                at += 1
            elif entry.done and entry.do not in _QUIET:
                self.faults.append(Fault(LOST, f"{entry} was acknowledged, and the audit log does not know of it"))
        for row in told[at:]:
            actor = f"event {row['id']}, {row['kind']} by {row['actor']}, epoch {row['epoch']}"
            self.faults.append(Fault(STALE_ACCEPTED, f"{self.pipeline}: {actor}: nobody may have caused it"))

    def _explain_by(self, unknown: list[Entry], row: Row) -> int:
        """Find the acquiring whose answer never came; 1 if there is one, for the event that it explains."""
        for entry in unknown:
            if row["kind"] in EVENTS["acquire"] and entry.owner == row["actor"]:
                unknown.remove(entry)
                return 1
        return 0


def _taken(asked: Sequence[Entry], told: Sequence[Row]) -> list[bool]:
    """Return for each command in order whether the next event is its own.

    A command without an answer may have one or not; of all ways to read them, one that explains everything is taken.
    """
    rest: list[list[bool]] = [[False] * len(told) + [True]]
    for entry in reversed(asked):
        after, may_lack = rest[-1], not entry.done or entry.do in _QUIET
        fits = [_fits(entry, row) for row in told]
        rest.append(
            [(at < len(told) and fits[at] and after[at + 1]) or (may_lack and after[at]) for at in range(len(told) + 1)]
        )
    rest.reverse()
    found, at = [], 0
    for index, entry in enumerate(asked):
        explained = rest[index][at]
        takes = at < len(told) and _fits(entry, told[at]) and (not explained or rest[index + 1][at + 1])
        found.append(takes)
        at += takes
    return found


def _fits(entry: Entry, row: Row) -> bool:
    """Return whether a command may have caused an event."""
    if row["kind"] not in EVENTS[entry.do] or not (entry.done or entry.unknown):
        return False
    if row["actor"] != entry.owner:
        return False
    detail, result = row["detail"], entry.result
    if entry.do == "declare":
        return bool(detail["after"].get("storm") == entry.tag)
    if entry.do == "begin":
        return bool(detail["run"] == entry.tag)
    if entry.do == "plan":
        ranges = entry.facts["ranges"]
        return bool(detail["batches"] == len(ranges) and detail["ranges"] == _spans(ranges))
    if not entry.done:
        return True
    if entry.do == "reconcile":
        same = all(detail[name] == len(result[name]) for name in ("acked", "imported"))
        return same and detail["fenced"] == result["fenced"] and detail["counts"] == result["counts"]
    if entry.do in ("settle", "lost"):
        return bool(detail["counts"] == result["counts"])
    return entry.do != "cancel" or detail["batches"] == len(result["keys"])


def _spans(ranges: Sequence[Sequence[Any]]) -> dict[str, list[list[int]]]:
    by_name: dict[str, list[Range]] = {}
    for name, start, end in ranges:
        by_name.setdefault(name, []).append(Range(start, end))
    return {name: [[span.start, span.end] for span in merge(ranges)] for name, ranges in by_name.items()}


def _acts(evidence: Evidence, pipeline: str) -> Iterator[Fault]:
    """Yield a fault for each user's action whose result and events do not agree; the reason names the command."""
    events = evidence.events.get(pipeline, ())
    applied = Counter(row["detail"].get("reason") for row in events if "action" in row["detail"])
    applied.update(row["detail"].get("reason") for row in events if row["kind"] == "lease_broken")
    kept = {row["reason"]: row for row in evidence.intents.get(pipeline, ())}
    for entry in evidence.of(pipeline, "act", "act_under", "break_lease"):
        row, number = kept.get(entry.tag), applied[entry.tag]
        if entry.facts.get("dry_run") or not (entry.done or entry.unknown):
            fine = number == 0 and row is None
        elif entry.unknown:
            fine = number <= 1
        elif entry.result.get("intent") is not None:
            fine = row is not None and number == (row["applied_at"] is not None)
        else:
            fine = number == 1 and row is None
        if not fine:
            how = f"{number} events" + (", kept as an intent" if row else "")
            kind = VIOLATION if number > 1 or entry.end in (Is.STALE, Is.REFUSED) else LOST
            yield Fault(kind, f"{entry} ended as {entry.end}, and the ledger has of it: {how}")
