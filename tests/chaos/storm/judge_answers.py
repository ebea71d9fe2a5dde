"""Judge the ledger's answers, each by itself and in their order: after a newer epoch, no older one may be accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.storm.evidence import LOST, STALE_ACCEPTED, VIOLATION, Evidence, Fault, Row
from tests.chaos.storm.journal import LOOK, Entry, Expect, Is, T

_CUT_OFF = ("57P01", "08")
"""SQLSTATEs of a session that was ended from outside."""


@dataclass(frozen=True, slots=True)
class Grant:
    """An epoch that the ledger granted, and the times between which it did."""

    epoch: int
    tried: float
    told: float
    name: str


def judge_answers(evidence: Evidence) -> Iterator[Fault]:
    """Return a fault for each answer that a correct ledger cannot give."""
    for entry in evidence.entries:
        yield from _by_itself(entry)
    for pipeline in evidence.pipelines:
        grants = _grants(evidence, pipeline)
        yield from _epochs_grow(grants)
        yield from _nothing_after_a_newer_epoch(evidence, pipeline, grants)
        yield from _nothing_after_release(evidence, pipeline)
        yield from _trail_in_order(pipeline, evidence.events.get(pipeline, ()))
        yield from _no_refusal_without_reason(evidence, pipeline, grants)


def stale_refused(entries: Iterable[Entry]) -> int:
    """Commands that were refused for their epoch."""
    return sum(entry.end is Is.STALE for entry in entries)


def _by_itself(entry: Entry) -> Iterator[Fault]:
    said = entry.result.get("message", "")
    if entry.end is Is.BROKEN:
        yield Fault(VIOLATION, f"{entry} broke: {said}")
    if entry.end is Is.UNAVAILABLE and not _cut_off(entry.result.get("sqlstate")):
        yield Fault(VIOLATION, f"{entry} got no answer though nobody ended its session: {said}")
    if entry.end is Is.BUSY and (entry.do != "acquire" or entry.facts["force"]):
        yield Fault(VIOLATION, f"{entry} was told that the lease is busy")
    if entry.expect is Expect.STALE and entry.done:
        yield Fault(STALE_ACCEPTED, f"{entry} was carried out, though its lease was over")
    if entry.expect is Expect.STALE and entry.end is Is.REFUSED:
        yield Fault(VIOLATION, f"{entry} was refused, but not as stale: {said}")
    if entry.expect is Expect.WRONG and entry.done:
        yield Fault(VIOLATION, f"{entry} was carried out, though it did not fit")
    if entry.expect is Expect.VALID and entry.end is Is.REFUSED:
        yield Fault(VIOLATION, f"{entry} was refused, though it fitted: {said}")
    if entry.expect is not Expect.STALE and entry.result.get("imported"):
        yield Fault(LOST, f"{entry} found receipts that the ledger had forgotten: {entry.result['imported']}")


def _cut_off(sqlstate: str | None) -> bool:
    return sqlstate is None or sqlstate.startswith(_CUT_OFF)


def _grants(evidence: Evidence, pipeline: str) -> list[Grant]:
    """Epochs that were acknowledged, in the order of their acknowledgement; an act's stands in its event."""
    events = evidence.events.get(pipeline, ())
    by_tag = {row["detail"].get("reason"): row["epoch"] for row in events if "action" in row["detail"]}
    found = []
    for entry in evidence.of(pipeline, "acquire", "break_lease", "act"):
        epoch = by_tag.get(entry.tag) if entry.do == "act" else entry.result.get("epoch")
        at_once = entry.do != "act" or entry.result.get("applied")
        if entry.done and at_once and epoch is not None and entry.told is not None:
            found.append(Grant(epoch, entry.tried, entry.told, str(entry)))
    return sorted(found, key=lambda grant: grant.told)


def _epochs_grow(grants: Sequence[Grant]) -> Iterator[Fault]:
    seen: dict[int, Grant] = {}
    for grant in grants:
        other = seen.setdefault(grant.epoch, grant)
        if other is not grant:
            yield Fault(VIOLATION, f"epoch {grant.epoch} was granted twice: {other.name}; {grant.name}")
    for grant, newest in _with_newest_before(grants, [(grant.tried, grant) for grant in grants]):
        if newest > grant.epoch:
            yield Fault(VIOLATION, f"{grant.name} was granted {grant.epoch} after {newest}")


def _nothing_after_a_newer_epoch(evidence: Evidence, pipeline: str, grants: Sequence[Grant]) -> Iterator[Fault]:
    commands = [e for e in evidence.of(pipeline) if e.epoch is not None and e.do != "release" and e.done]
    for entry, newest in _with_newest_before(grants, [(entry.tried, entry) for entry in commands]):
        if entry.epoch is not None and entry.expect is not Expect.STALE and newest > entry.epoch:
            yield Fault(STALE_ACCEPTED, f"{entry} was carried out after epoch {newest} had been granted")


def _with_newest_before(grants: Sequence[Grant], moments: list[tuple[float, T]]) -> Iterator[tuple[T, int]]:
    """Each thing with the newest epoch that was acknowledged before its moment."""
    newest, at = 0, 0
    for moment, thing in sorted(moments, key=lambda pair: pair[0]):
        while at < len(grants) and grants[at].told < moment:
            newest = max(newest, grants[at].epoch)
            at += 1
        yield thing, newest


def _nothing_after_release(evidence: Evidence, pipeline: str) -> Iterator[Fault]:
    released: dict[int, float] = {}
    for entry in evidence.of(pipeline, "release"):
        if entry.done and entry.epoch is not None and entry.told is not None:
            released.setdefault(entry.epoch, entry.told)
    for entry in evidence.of(pipeline):
        if entry.epoch is None or not entry.done or entry.do == "release" or entry.expect is Expect.STALE:
            continue
        if released.get(entry.epoch, entry.tried) < entry.tried:
            yield Fault(STALE_ACCEPTED, f"{entry} was carried out after its lease had been released")


def _trail_in_order(pipeline: str, events: Sequence[Row]) -> Iterator[Fault]:
    """Commands of one pipeline are stored one after the other, so their events' epochs never go back."""
    newest = 0
    for row in events:
        epoch = row["epoch"]
        if epoch is not None and epoch < newest:
            yield Fault(
                STALE_ACCEPTED,
                f"{pipeline}: event {row['id']}, {row['kind']} by {row['actor']}, was stored under epoch {epoch} after "
                f"{newest}",
            )
        newest = max(newest, epoch or 0)


def _no_refusal_without_reason(evidence: Evidence, pipeline: str, grants: Sequence[Grant]) -> Iterator[Fault]:
    newest = max(
        [grant.epoch for grant in grants] + [row["epoch"] or 0 for row in evidence.events.get(pipeline, ())], default=0
    )
    released = {entry.epoch for entry in evidence.of(pipeline, "release")}
    for entry in evidence.of(pipeline):
        if entry.end is not Is.STALE or entry.expect is Expect.STALE or entry.do == LOOK:
            continue
        if entry.epoch is not None and newest <= entry.epoch and entry.epoch not in released:
            yield Fault(VIOLATION, f"{entry} was refused as stale, and no newer epoch was ever granted")
