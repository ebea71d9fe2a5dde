"""Pool of all states of a partition that the search has met, with the core's answers in each.

The core is called once for each state and question, and its answer is checked then; all worlds with this state share
the answer. A state's key leaves out values that influence no decision: error texts, record counts, and the retry
delay's exponent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_provider_ckpt.core import apply_action
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.invariants import Violation, state_violations, step_violations
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.core.ranges import Range, subtract
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from tests.formal.coverage import Met
from tests.formal.expectations import ACCOUNTED, REFUSAL, disappointments, misdirected
from tests.formal.observation import Seen
from tests.formal.questions import Question

_ANY_EPOCH = 1_000_000
"""Beyond every epoch: the lease's epoch is checked world by world."""


class BrokenError(Exception):
    """A property does not hold."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = list(violations)
        super().__init__("; ".join(f"{found.name}: {found.message}" for found in self.violations))


@dataclass(frozen=True, slots=True)
class Place:
    """A state of one partition, with what its checkpoint has passed.

    :param passed: the range receipts of its generation
    :param let_go: positions that the ledger resolved without a receipt: skipped, or sent at most once
    """

    partition: Partition
    passed: tuple[RangeReceipt, ...]
    let_go: frozenset[int]


class Machine(NamedTuple):
    """A pipeline's phase, its newest generation, and the places of its partitions, by id."""

    phase: Phase
    generation: int
    parts: tuple[int, ...]


class Deed(NamedTuple):
    """A user's action, as a value that can be stored.

    :param positions: for rewind, as in :class:`Act`
    :param ranges: for replay, as in :class:`Act`
    """

    kind: ActionKind
    batches: tuple[BatchKey, ...] = ()
    positions: tuple[tuple[str, int], ...] = ()
    ranges: tuple[tuple[str, Range], ...] = ()


class Pool:
    """Places and answers.

    :param met: gets every question and its answer
    """

    def __init__(self, met: Met) -> None:
        self.met = met
        self.places: list[Place] = []
        self._index: dict[Any, int] = {}
        self._known: dict[Any, int] = {}
        self._answers: dict[tuple[int, Question], int] = {}
        self._deeds: dict[tuple[Machine, Deed], Machine | None] = {}
        self._checked: set[tuple[int, int]] = set()
        self._accounted: set[tuple[int, frozenset[Receipt]]] = set()

    def partition(self, place: int) -> Partition:
        """The partition at a place; not to be changed."""
        return self.places[place].partition

    def start(self, partition: Partition) -> int:
        """The place of a new partition."""
        return self._place(partition)

    def ask(self, place: int, question: Question) -> int:
        """The place that the core's answer to a question leads to; the same one if it refuses.

        :raises BrokenError: if it breaks an invariant
        """
        known = self._answers.get((place, question))
        if known is None:
            known = self._answers[place, question] = self._answer(place, question)
        return known

    def action(self, machine: Machine, deed: Deed) -> Machine | None:
        """Return the pipeline after a user's action; None if the core refuses it.

        :raises BrokenError: if it breaks an invariant
        """
        if (machine, deed) not in self._deeds:
            self._deeds[machine, deed] = self._act(machine, deed)
        return self._deeds[machine, deed]

    def check(self, place: int, epoch: int) -> None:
        """Check the state invariants, once.

        :raises BrokenError: if one does not hold
        """
        if (place, epoch) not in self._checked:
            found = self.places[place]
            _raise(state_violations(found.partition, found.passed, epoch=epoch))
            self._checked.add((place, epoch))

    def account(self, place: int, receipts: frozenset[Receipt]) -> None:
        """Check that the sink, or the ledger itself, accounts for every position below the checkpoint, once.

        :raises BrokenError: if not
        """
        if (place, receipts) in self._accounted:
            return
        found = self.places[place]
        part = found.partition
        if part.committed > part.base:
            known = [r.range for r in receipts if (r.key.generation, r.key.partition) == (part.generation, part.id)]
            known += [Range(position, position + 1) for position in found.let_go]
            for gap in subtract(Range(part.base, part.committed), known):
                message = f"committed is {part.committed}, and nothing accounts for {gap}"
                raise BrokenError([Violation(ACCOUNTED, part.id, message, gap.start)])
        self._accounted.add((place, receipts))

    def _answer(self, place: int, question: Question) -> int:
        before = self.places[place]
        part = _copy(before.partition)
        seen = Seen(question[0].__name__, question[1:], before.partition, part, before.passed)
        try:
            seen.events = tuple(question[0](part, *question[1:]))
        except LedgerStateError:
            self._refuse(seen)
            return place
        changed = _key(part) != _key(before.partition)
        _raise(list(disappointments(question, seen, changed=changed)))
        return self._move(before, seen)

    def _act(self, machine: Machine, deed: Deed) -> Machine | None:
        before = {place.partition.id: place for place in (self.places[index] for index in machine.parts)}
        copies = [_copy(place.partition) for place in before.values()]
        made = PipelineState(copies, phase=machine.phase, generation=machine.generation)
        action = Action(deed.kind, deed.batches, dict(deed.positions), deed.ranges)
        name = deed.kind.value
        try:
            events = apply_action.apply(made, action, reason="test")
        except LedgerStateError:
            for part in copies:
                self._refuse(Seen(name, deed, before[part.id].partition, part, before[part.id].passed))
            if (made.phase, made.generation, len(made.partitions)) != (*machine[:2], len(before)):
                raise BrokenError([Violation(REFUSAL, "", f"{name} was refused and changed the pipeline")]) from None
            return None
        _raise(list(misdirected({name: place.partition for name, place in before.items()}, deed.batches)))
        parts = []
        for part in made.partitions.values():
            old = before.get(part.id)
            if old is None:
                parts.append(self.start(part))
                self.met.happened(events)
                continue
            own = tuple(event for event in events if event.partition in (part.id, ""))
            parts.append(self._move(old, Seen(name, deed, old.partition, part, old.passed, own)))
        return Machine(made.phase, made.generation, tuple(parts))

    def _refuse(self, seen: Seen) -> None:
        seen.refused = True
        if _key(seen.before) != _key(seen.after):
            raise BrokenError(
                [Violation(REFUSAL, seen.before.id, f"{seen.name} was refused and changed the partition")]
            )
        self.met.observe(seen)

    def _move(self, before: Place, seen: Seen) -> int:
        part = seen.after
        fresh = [batch for batch in part.passed if batch.key.generation == part.generation]
        passed, let_go = before.passed, before.let_go
        if part.generation != before.partition.generation:
            passed, let_go = (), frozenset()
        if fresh:
            passed = tuple(merge_receipts([*passed, *map(RangeReceipt.of, fresh)]))
            let_go = let_go.union(*map(_let_go, fresh))
        seen.passed = passed
        self.met.observe(seen)
        part.passed = []
        return self._place(part, passed, let_go, step_violations(seen.before, part))

    def _place(
        self,
        partition: Partition,
        passed: tuple[RangeReceipt, ...] = (),
        let_go: frozenset[int] = frozenset(),
        wrong: Sequence[Violation] = (),
    ) -> int:
        """The place of a state; counts below the checkpoint make no other place, but are checked.

        :param wrong: with the step that led there
        """
        key = (_key(partition), let_go)
        index = self._known.get((key, passed))
        if index is None:
            _raise([*wrong, *state_violations(partition, passed, epoch=_ANY_EPOCH)])
            place = (key, *((receipt.range.start, receipt.range.end) for receipt in passed))
            index = self._known[key, passed] = self._index.setdefault(place, len(self.places))
        if index == len(self.places):
            self.places.append(Place(partition, passed, let_go))
        _raise(wrong)
        return index


def _raise(violations: Sequence[Violation]) -> None:
    if violations:
        raise BrokenError(violations)


def _copy(partition: Partition) -> Partition:
    made = Partition.__new__(Partition)
    made.__dict__.update(partition.__dict__)
    made.batches, made.passed = dict(partition.batches), []
    return made


def _let_go(batch: Batch) -> Iterable[int]:
    return range(batch.range.start, batch.range.end) if batch.receipt is None else ()


def _key(p: Partition) -> tuple[Any, ...]:
    batches = [_batch_key(batch) for _, batch in sorted(p.batches.items())]
    return (p.id, p.generation, p.base, p.committed, p.next_seq, p.planned_end, p.limit, p.phase, *batches)


def _batch_key(b: Batch) -> tuple[Any, ...]:
    receipt: tuple[Verdict, int, Range] | None = None
    if b.receipt is not None:
        receipt = (b.receipt.verdict, b.receipt.epoch, b.receipt.range)
    counters = (b.attempts, b.failures, b.round, b.deaths, b.alone, b.not_before is None, b.epoch, b.cancelled)
    return (b.key.seq, b.range.start, b.range.end, b.state, b.instruction, counters, receipt)
