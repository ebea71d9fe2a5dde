"""Coverage that the search must reach: all states of a batch, kinds of events, transitions and situations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, BatchState
from airflow_provider_ckpt.core.tickets import Event
from tests.formal.observation import Seen
from tests.formal.situations import SITUATIONS

EVENT_KINDS = frozenset(
    {
        "planned", "begun", "acked", "ack_duplicate", "ack_spurious", "failed", "not_attempted", "abandoned", "fenced",
        "cancelled", "died_alone", "run_alone", "instructed", "held", "released", "skipped", "superseded",
        "receipt_imported", "checkpoint", "phase", "phase_unchanged", "side_partition_started", "rewound",
    }
)  # fmt: skip
"""Every kind of event that the core knows."""

_VERDICTS = (BatchState.DELIVERED, BatchState.REJECTED, BatchState.SKIPPED)
_BACK = ("failed", "not_attempted", "cancelled", "abandoned", "fenced", "died_alone")

TRANSITIONS: frozenset[tuple[str, str, str]] = frozenset(
    {
        ("planned", "", BatchState.PLANNED),
        ("begun", BatchState.PLANNED, BatchState.IN_FLIGHT),
        ("begun", BatchState.PLANNED, BatchState.SENT),
        *(("acked", before, after) for before in BLOCKING for after in _VERDICTS),
        ("acked", BatchState.SENT, BatchState.DELIVERED),
        *((kind, BatchState.IN_FLIGHT, BatchState.PLANNED) for kind in _BACK),
        ("died_alone", BatchState.IN_FLIGHT, BatchState.HELD),
        ("run_alone", BatchState.PLANNED, BatchState.PLANNED),
        ("held", BatchState.IN_FLIGHT, BatchState.HELD),
        ("held", BatchState.PLANNED, BatchState.HELD),
        ("released", BatchState.HELD, BatchState.PLANNED),
        ("instructed", BatchState.PLANNED, BatchState.PLANNED),
        ("instructed", BatchState.IN_FLIGHT, BatchState.IN_FLIGHT),
        ("instructed", BatchState.HELD, BatchState.PLANNED),
        ("skipped", BatchState.PLANNED, BatchState.SKIPPED),
        ("skipped", BatchState.HELD, BatchState.SKIPPED),
        *(("superseded", before, BatchState.SUPERSEDED) for before in BLOCKING),
        *(("superseded", before, "") for before in (BatchState.PLANNED, BatchState.HELD)),
        *(("receipt_imported", before, BatchState.DELIVERED) for before in ("", *BLOCKING, BatchState.SKIPPED)),
    }
)
"""Event, state before, state after (empty: none) of the batch in the command that caused it; semantics, section 1."""


@dataclass
class Met:
    """The situations, states, kinds of events and transitions that a search has met."""

    situations: dict[str, bool] = field(default_factory=lambda: {item.name: False for item in SITUATIONS})
    states: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    transitions: set[tuple[str, str, str]] = field(default_factory=set)
    _open: list[int] = field(default_factory=lambda: [n for n, item in enumerate(SITUATIONS) if item.on])

    def reach(self, name: str) -> None:
        """Note a situation that the search itself knows."""
        assert name in self.situations
        self.situations[name] = True

    def happened(self, events: Iterable[Event]) -> None:
        """Note the kinds of events."""
        self.kinds.update(event.kind for event in events)

    def observe(self, seen: Seen) -> None:
        """Note what a question has shown."""
        self.happened(seen.events)
        passed = {batch.key.seq: batch for batch in seen.after.passed}
        self.states.update(batch.state.value for batch in [*seen.after.batches.values(), *passed.values()])
        for event in seen.events:
            if event.seq is not None:
                before = seen.before.batches.get(event.seq)
                after = seen.after.batches.get(event.seq) or passed.get(event.seq)
                self.transitions.add((event.kind, before.state if before else "", after.state if after else ""))
        happened = {seen.name, *(event.kind for event in seen.events)}
        for number in list(self._open):
            item = SITUATIONS[number]
            if not item.on.isdisjoint(happened) and item.met(seen):
                self.situations[item.name] = True
                self._open.remove(number)


def guards(found: Iterable[Met]) -> Iterator[tuple[str, bool]]:
    """Yield each goal that one of several searches must reach, and whether it was reached."""
    met = list(found)
    for situation in SITUATIONS:
        yield f"{situation.tests}: {situation.name}", any(one.situations[situation.name] for one in met)
    states = {state for one in met for state in one.states}
    for state in sorted(BLOCKING | RESOLVED | {BatchState.SUPERSEDED}):
        yield f"state {state.value}", state.value in states
    kinds = {kind for one in met for kind in one.kinds}
    for kind in sorted(EVENT_KINDS):
        yield f"event {kind}", kind in kinds
    for kind in sorted(kinds - EVENT_KINDS):
        yield f"event {kind} is one that this search knows", False
    transitions = {transition for one in met for transition in one.transitions}
    for kind, before, after in sorted(TRANSITIONS):
        yield f"transition {kind}: {before or 'nothing'} to {after or 'nothing'}", (kind, before, after) in transitions
