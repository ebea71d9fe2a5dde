"""Compare the ledger's state with the commands that it acknowledged, and its counts with the sink's, by generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.chaos.storm.evidence import LOST, STALE_ACCEPTED, VIOLATION, Evidence, Fault, Row
from tests.chaos.storm.journal import LOOK, Entry
from tests.chaos.storm.judge_events import Trail
from tests.chaos.storm.stale import POISON

Place = tuple[int, str]
"""Generation and partition."""

Key = tuple[int, str, int]


@dataclass(slots=True)
class Course:
    """The history of one partition in one generation.

    :param planned: the range of each batch that was planned, by seq
    :param once: seqs that were begun at most once: nobody may ever hear of their receipts
    :param acked: seqs whose receipts the ledger has acknowledged as news
    :param skipped: seqs that were let go without a receipt
    :param sums: what the ledger keeps of the receipts' counts, also where the receipts themselves were collected
    """

    planned: dict[int, tuple[int, int]] = field(default_factory=dict)
    once: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    passed: list[Row] = field(default_factory=list)
    sink: list[Receipt] = field(default_factory=list)
    sums: Row | None = None


def judge_state(evidence: Evidence, trail: Trail) -> Iterator[Fault]:
    """Return a fault for everything that is missing or superfluous in the ledger's state of one pipeline.

    :param trail: says which of the commands without an answer have happened
    """
    pipeline = trail.pipeline
    courses = _courses(evidence, trail)
    current = {(row["generation"], row["partition"]): row for row in evidence.partitions.get(pipeline, ())}
    for place, course in sorted(courses.items()):
        name = f"{pipeline}, {place[1]} in generation {place[0]}"
        yield from _batches_are_there(name, course, current.get(place))
        yield from _counts_equal(name, course, collected=evidence.collected)
        yield from _positions_add_up(name, course)
    for row in evidence.partitions.get(pipeline, ()):
        if row["partition"] == POISON:
            yield Fault(STALE_ACCEPTED, f"{pipeline}: a stale command has started partition {POISON!r}")
    yield from _acknowledged_once(evidence, pipeline, courses)
    yield from _attempts(evidence, pipeline)


def _courses(evidence: Evidence, trail: Trail) -> dict[Place, Course]:
    pipeline = trail.pipeline
    courses: dict[Place, Course] = {}

    def at(generation: int, partition: str) -> Course:
        return courses.setdefault((generation, partition), Course())

    for entry in evidence.of(pipeline, "plan"):
        keys = entry.result.get("keys", ())
        for (generation, partition, seq), (_, start, end) in zip(keys, entry.facts["ranges"], strict=False):
            at(generation, partition).planned[seq] = (start, end)
    _add_unanswered(evidence, trail, courses)
    for entry in evidence.of(pipeline, "begin"):
        for generation, partition, seq in entry.facts["keys"] if entry.facts["at_most_once"] else ():
            at(generation, partition).once.add(seq)
    for generation, partition, seq in _acked(evidence.of(pipeline)):
        at(generation, partition).acked.add(seq)
    _add_stored(evidence, pipeline, at)
    return courses


def _add_stored(evidence: Evidence, pipeline: str, at: Callable[[int, str], Course]) -> None:
    for row in evidence.events.get(pipeline, ()):
        if row["kind"] == "skipped" and "verdict" not in row["detail"]:
            at(row["generation"], row["partition"]).skipped.add(row["seq"])
    for row in evidence.batches.get(pipeline, ()):
        at(row["generation"], row["partition"]).rows.append(row)
    for row in evidence.receipts.get(pipeline, ()):
        at(row["generation"], row["partition"]).passed.append(row)
    for row in [*evidence.generations.get(pipeline, ()), *evidence.partitions.get(pipeline, ())]:
        if row["read"] is not None:
            at(row["generation"], row["partition"]).sums = row
    for receipt in evidence.sink.get(pipeline, ()):
        at(receipt.key.generation, receipt.key.partition).sink.append(receipt)


def _add_unanswered(evidence: Evidence, trail: Trail, courses: dict[Place, Course]) -> None:
    """Plans that happened without an answer got the numbers that no answered plan has, in the order of their events."""
    plans = [e for e in evidence.of(trail.pipeline, "plan") if e.unknown and e.tag in trail.happened]
    for entry in sorted(plans, key=lambda entry: trail.happened[entry.tag]):
        for partition, start, end in entry.facts["ranges"]:
            planned = courses.setdefault((entry.facts["generations"][partition], partition), Course()).planned
            free = next(seq for seq in range(len(planned) + 1) if seq not in planned)
            planned[free] = (start, end)


def _acked(entries: Iterable[Entry]) -> Iterator[Key]:
    for entry in entries:
        yield from map(tuple, entry.result.get("acked", ()))


def _batches_are_there(name: str, course: Course, partition: Row | None) -> Iterator[Fault]:
    """Each planned batch is a row or below the checkpoint; each row was planned, with that range."""
    there = {row["seq"]: (row["range_start"], row["range_end"]) for row in course.rows}
    for seq, span in sorted(there.items()):
        if course.planned.get(seq) != span:
            yield Fault(VIOLATION, f"{name}: batch {seq} is {span}, and was planned as {course.planned.get(seq)}")
    if partition is None:
        if there:
            yield Fault(VIOLATION, f"{name} has ended and still has batches {sorted(there)}")
        return
    for seq, span in sorted(course.planned.items()):
        if seq not in there and span[1] > partition["committed"]:
            yield Fault(LOST, f"{name}: batch {seq} {span} was planned, lies beyond the checkpoint, and is gone")
    known = len(there) + sum(row["batches"] for row in course.passed)
    if not partition["next_seq"] == len(course.planned) == known:
        yield Fault(
            LOST,
            f"{name}: {len(course.planned)} batches were planned, {partition['next_seq']} numbers given out, and "
            f"{known} are accounted for",
        )


def _counts_equal(name: str, course: Course, *, collected: bool) -> Iterator[Fault]:
    """Judge the ledger's counts: they lie between what it acknowledged and what the sink holds."""
    sure = [r for r in course.sink if r.key.seq not in course.once or r.key.seq in course.acked]
    least = sum((receipt.counts for receipt in sure), Counts()).to_json()
    most = sum((receipt.counts for receipt in course.sink), Counts()).to_json()
    least["rejected"] = sum(receipt.verdict is Verdict.REJECTED for receipt in sure)
    most["rejected"] = sum(receipt.verdict is Verdict.REJECTED for receipt in course.sink)
    for field_name in least:
        passed = sum(row[field_name] for row in course.passed)
        if course.sums is not None and (course.passed or not collected):
            if course.sums[field_name] != passed:
                yield Fault(VIOLATION, f"{name}: {field_name} is summed up as {course.sums[field_name]}, not {passed}")
        elif course.sums is not None:
            passed = course.sums[field_name]
        told = sum(_told(row, field_name) for row in course.rows) + passed
        if told < least[field_name]:
            yield Fault(LOST, f"{name}: the sink has {field_name} {least[field_name]}, the ledger {told}")
        if told > most[field_name]:
            yield Fault(VIOLATION, f"{name}: the ledger has {field_name} {told}, the sink only {most[field_name]}")


def _told(row: Row, field_name: str) -> int:
    receipt = row["receipt"]
    if receipt is None:
        return 0
    if field_name == "rejected":
        return int(receipt["verdict"] == Verdict.REJECTED)
    return int(receipt["counts"][field_name])


def _positions_add_up(name: str, course: Course) -> Iterator[Fault]:
    """Each position that the checkpoint has passed was read once, or let go by name."""
    gone = course.sums is not None and course.sums["batches"] and not course.passed
    if course.once or gone:
        return
    passed = sum(row["range_end"] - row["range_start"] for row in course.passed)
    resolved = [row for row in course.rows if row["receipt"] is not None or row["state"] == "skipped"]
    passed += sum(row["range_end"] - row["range_start"] for row in resolved)
    read = sum(receipt.counts.read for receipt in course.sink)
    voided = sum(r.range.end - r.range.start for r in course.sink if r.verdict is Verdict.VOID)
    let_go = sum(end - start for seq, (start, end) in course.planned.items() if seq in course.skipped)
    if passed != read + voided + let_go:
        yield Fault(
            VIOLATION,
            f"{name}: {passed} positions have a verdict, and {read} were read, {voided} voided, {let_go} skipped",
        )


def _acknowledged_once(evidence: Evidence, pipeline: str, courses: dict[Place, Course]) -> Iterator[Fault]:
    """A receipt is news once, is the sink's, and its batch waits for nothing any more."""
    entries = evidence.of(pipeline)
    for key, times in Counter(_acked(entries)).items():
        if times > 1:
            yield Fault(LOST, f"{pipeline}: the receipt of {key} was news {times} times, so it was forgotten between")
    waiting: dict[Key, float] = {}
    for entry in entries:
        for partition, (generation, _, blocking) in entry.result.items() if entry.do == LOOK and entry.done else ():
            waiting |= {(generation, partition, seq): entry.tried for seq in blocking}
    held = {place: {receipt.key.seq for receipt in course.sink} for place, course in courses.items()}
    for entry in entries:
        for key in _acked([entry]):
            if key[2] not in held.get(key[:2], ()):
                yield Fault(VIOLATION, f"{entry} acknowledged {key}, of which the sink has no receipt")
            if entry.told is not None and waiting.get(key, 0.0) > entry.told:
                yield Fault(LOST, f"{entry} acknowledged {key}, which still waited for a verdict later")


def _attempts(evidence: Evidence, pipeline: str) -> Iterator[Fault]:
    """No attempt's number was given twice, and none of those given is gone while its batch is there."""
    given: Counter[tuple[Key, int]] = Counter()
    for entry in evidence.of(pipeline, "begin"):
        given.update(((g, p, s), number) for (g, p, s), number in entry.result.get("attempts", ()))
    rows = {(row["generation"], row["partition"], row["seq"]): row for row in evidence.batches.get(pipeline, ())}
    for (key, number), times in given.items():
        if times > 1:
            yield Fault(VIOLATION, f"{pipeline}: attempt {number} of {key} was begun {times} times")
        if key in rows and rows[key]["attempts"] < number:
            yield Fault(LOST, f"{pipeline}: attempt {number} of {key} was begun, and the ledger knows fewer")
    kept = Counter((row["generation"], row["partition"], row["seq"]) for row in evidence.attempts.get(pipeline, ()))
    for key, row in rows.items():
        if kept[key] > row["attempts"] or (kept[key] < row["attempts"] and not evidence.collected):
            yield Fault(VIOLATION, f"{pipeline}: {key} has had {row['attempts']} attempts, and {kept[key]} are kept")
