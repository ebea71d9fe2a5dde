"""Configurations of the search: small ones, which take seconds, for every build, and large ones for ``make formal``.

Each configuration enables some kinds of steps; together they enable all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.action import ActionKind
from tests.formal.worlds import Bounds

_ON_BATCHES = frozenset({ActionKind.HOLD, ActionKind.RELEASE, ActionKind.SKIP, ActionKind.CANCEL})
_ON_PHASES = frozenset({ActionKind.DRAIN, ActionKind.STOP, ActionKind.FORCE_STOP, ActionKind.RESUME})
_GENERATIONS = frozenset({ActionKind.REWIND, ActionKind.REPLAY, ActionKind.RECOVER, ActionKind.HOLD})
_SKIP = frozenset({ActionKind.SKIP})
_ASIDE = frozenset({ActionKind.HOLD, ActionKind.SKIP, ActionKind.DRAIN})

SMALL: Mapping[str, Bounds] = {
    "delivery": Bounds(positions=3, sizes=(1, 2), batches=2),
    "failures": Bounds(positions=1, batches=1, failures=True, gives_up=True, deaths=True),
    "people": Bounds(positions=2, batches=2, epochs=1, actions=_ON_BATCHES),
    "phases": Bounds(positions=2, batches=2, attempts=1, actions=_ON_PHASES | {ActionKind.HOLD}),
    "restored": Bounds(positions=2, sizes=(1, 2), batches=2, attempts=1, backup=True, actions=_SKIP),
    "restored, rewound": Bounds(
        positions=2, batches=2, attempts=1, generations=3, backup=True, actions=frozenset({ActionKind.REWIND})
    ),
    "adopted": Bounds(positions=2, sizes=(1, 2), batches=2, attempts=1, adopts=True, actions=_ASIDE),
    "sink set back": Bounds(positions=2, batches=2, attempts=1, epochs=3, sink_backup=True),
    "generations": Bounds(positions=2, batches=2, attempts=1, generations=2, actions=_GENERATIONS),
    "at most once": Bounds(positions=2, batches=2, at_most_once=True),
}
"""All of them in seconds."""

LARGE: Mapping[str, Bounds] = {
    "people, three batches": Bounds(attempts=1, actions=_ON_BATCHES),
    "three runs": Bounds(sizes=(1, 2), epochs=3),
    "generations, all actions": Bounds(
        positions=2, batches=2, attempts=1, generations=2, actions=frozenset(ActionKind)
    ),
    "restored, rewound": Bounds(
        positions=2, batches=2, attempts=1, generations=3, backup=True, actions=frozenset({ActionKind.REWIND})
    ),
    "adopted": Bounds(sizes=(1, 2), attempts=1, adopts=True, actions=_SKIP),
    "phases, two partitions": Bounds(partitions=2, positions=2, batches=2, attempts=1, epochs=3, actions=_ON_PHASES),
    "people": Bounds(positions=2, batches=2, gives_up=True, actions=_ON_BATCHES),
    "three generations": Bounds(
        positions=2, batches=2, attempts=1, generations=3, actions=frozenset({ActionKind.REWIND, ActionKind.REPLAY})
    ),
    "phases": Bounds(positions=2, batches=2, actions=_ON_PHASES | {ActionKind.HOLD}),
    "adopted, all actions": Bounds(
        positions=2, sizes=(1, 2), batches=2, attempts=1, gives_up=True, adopts=True, actions=_ON_BATCHES | _ON_PHASES
    ),
    "restored": Bounds(sizes=(1, 2), attempts=1, backup=True),
    "sink set back": Bounds(
        positions=2, batches=2, epochs=3, generations=2, sink_backup=True, actions=frozenset({ActionKind.REWIND})
    ),
    "restored, skipped": Bounds(sizes=(1, 2), batches=2, attempts=1, backup=True, actions=_SKIP),
    "failures": Bounds(positions=2, batches=2, epochs=1, failures=True, gives_up=True),
    "two partitions": Bounds(partitions=2, positions=2, batches=2, attempts=1),
    "deaths": Bounds(positions=2, batches=2, deaths=True),
    "generations": Bounds(positions=2, batches=2, attempts=1, epochs=3, generations=2, actions=_GENERATIONS),
    "at most once": Bounds(epochs=3, at_most_once=True, actions=frozenset({ActionKind.HOLD, ActionKind.RELEASE})),
}
"""The slowest first, so that two processes end at about the same time."""
