"""Models of ``Protocol.tla`` for TLC: configurations that take seconds each, and mutants of the protocol.

A configuration limits the model to one topic, so that it has few states; ``Properties.tla`` defines the properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Constant = bool | int | str | frozenset[str] | frozenset[int]
Bounds = Mapping[str, Constant]

STATE = (
    "CheckpointNeverAheadOfTerminalizedPrefix",
    "CheckpointOrderingInvariant",
    "UnresolvedWorkNotCommittedPast",
    "PlannedWorkVisibleToCheckpoint",
    "CommittedNeverAheadOfPlanned",
    "QuiescenceHasNoSilentStrandedWork",
    "RangesTileTheSource",
    "ReceiptMatchesBatch",
    "SumIdentity",
    "AtMostOneVerdictPerBatch",
    "NeverDeliveredAndDeadLettered",
    "PartitionOrderKept",
    "NoCommitByStaleEpoch",
    "ReceiptsReadAreFinal",
    "OpenAttemptsAreTheHolders",
    "DrainCompleteness",
    "NothingLost",
    "NothingLeftBehind",
    "NothingDoubled",
    "SinkLossIsTold",
    "LowerPositionsAreTold",
)
"""Invariants of every state."""

STEP = (
    "CommittedMonotonic",
    "FailureTerminalizationPreservesCheckpoint",
    "HeldTransitionsDoNotCommit",
    "CancellationWatermarkBlocks",
    "NoDoubleComplete",
    "NoCommitByEndedGeneration",
    "GenerationIsNew",
    "NoPlanAfterDrain",
    "DrainMeansNoNewSending",
    "ForceStopAbandonsAllInFlight",
)
"""Properties of every step."""

LIVE = ("NoBatchLeftBehind", "EventualDrain", "HeldBatchEventuallyReleased", "CancelledWorkCanFinish")
"""Properties of every whole behaviour, under fairness."""

FENCES = ("postgres", "kafka", "table", "marker")

UNFENCED = frozenset({"NoCommitByStaleEpoch", "ReceiptsReadAreFinal", "NoCommitByEndedGeneration"})
"""Not claimed of markers: nobody is shut out there."""

UNTILED = frozenset({"NothingDoubled", "RangesTileTheSource", "SumIdentity"})
"""Not claimed of markers where the ledger is restored: an older lane may put a marker whose range the restored ledger
has cut in another way."""

UNRECONCILED = frozenset({"OpenAttemptsAreTheHolders", "PartitionOrderKept"})
"""Not claimed where the ledger is restored: it forgets what was begun, and numbers imported ranges anew."""

UNRESTORED = frozenset({"NothingLost", "NothingLeftBehind", "ReceiptMatchesBatch", "PartitionOrderKept"})
"""Not claimed where the sink is set back: what was there is gone. That it is told is ``SinkLossIsTold``."""

UNORDERED = frozenset({"PartitionOrderKept"})
"""Not claimed at most once: a lane that outlives its wave delivers late what is never sent again before the rest."""

_DEFAULTS: Bounds = {
    "DELIVERY": "exactly_once",
    "PINNED": True,
    "RUNS": 2,
    "ONE_OWNER": False,
    "SOURCE_END": 2,
    "LENGTHS": frozenset({1}),
    "PLANS": frozenset({1}),
    "EXHAUSTED": frozenset({"retry"}),
    "ACTS": frozenset[str](),
    "NEIGHBOUR": False,
    "PURGES": False,
    "TABLE_EXISTS": True,
    "MAX_EPOCH": 2,
    "MAX_WAVES": 2,
    "MAX_TWINS": 0,
    "MAX_GENERATION": 1,
    "MAX_ACTS": 0,
    "MAX_RESTORES": 0,
    "MAX_SINK_RESTORES": 0,
    "MAX_LOWER": 0,
    "MAX_FAULTS": 99,
    "MUTANT": "none",
}


@dataclass(frozen=True, slots=True)
class Model:
    """One configuration.

    :param theme: what it is about
    :param constants: all of the specification's, but the guards
    :param properties: what is checked, by name
    """

    fence: str
    theme: str
    constants: Bounds
    properties: Sequence[str]

    @property
    def name(self) -> str:
        """Fence and theme."""
        return f"{self.fence}/{self.theme}"

    @property
    def live(self) -> bool:
        """Return whether fairness is assumed."""
        return any(name in LIVE for name in self.properties)


@dataclass(frozen=True, slots=True)
class Mutant:
    """The protocol without one of its rules.

    :param model: the shortest configuration that finds it
    """

    name: str
    model: Model

    @property
    def expected(self) -> str:
        """The property that must fail."""
        return self.model.properties[0]


def model(fence: str, theme: str, bounds: Bounds, properties: Sequence[str] = (*STATE, *STEP)) -> Model:
    """A configuration; what a fence does not claim is left out."""
    unclaimed: frozenset[str] = UNFENCED if fence == "marker" else frozenset()
    if bounds.get("DELIVERY") == "at_most_once":
        unclaimed |= UNORDERED
    if bounds.get("MAX_RESTORES"):
        unclaimed |= UNRECONCILED | (UNTILED if fence == "marker" else frozenset())
    if bounds.get("MAX_SINK_RESTORES"):
        unclaimed |= UNRESTORED
    claimed = [name for name in properties if name not in unclaimed]
    return Model(fence, theme, {"FENCE": fence, **_DEFAULTS, **bounds}, claimed)


def _with(*shared: Bounds, **bounds: Constant) -> Bounds:
    """Bounds that differ from the usual ones; a later one wins."""
    return {name: value for some in (*shared, bounds) for name, value in some.items()}


_TWO = _with(SOURCE_END=2, PLANS=frozenset({2}))
_ONE = _with(SOURCE_END=1)
_ALIVE = _with(
    EXHAUSTED=frozenset({"retry", "hold"}),
    ACTS=frozenset({"release", "cancel", "drain"}),
    MAX_ACTS=1,
    MAX_FAULTS=1,
    MAX_EPOCH=3,
    MAX_WAVES=12,
)
_VERDICTS = _with(
    _ONE, EXHAUSTED=frozenset({"retry", "reject", "hold"}), ACTS=frozenset({"release", "skip"}), MAX_ACTS=1, MAX_TWINS=1
)
_HELD = _with(ACTS=frozenset({"hold", "release", "skip", "cancel"}), MAX_ACTS=1, RUNS=1)
_DRAINED = _with(ACTS=frozenset({"cancel", "drain", "force_stop"}), MAX_ACTS=1, RUNS=1)
_REWOUND = _with(ACTS=frozenset({"rewind"}), MAX_ACTS=1, MAX_GENERATION=2)
_RESTORED = _with(RUNS=1, LENGTHS=frozenset({1, 2}), MAX_RESTORES=1, MAX_FAULTS=2)
_REWOUND_TWICE = _with(_REWOUND, _ONE, RUNS=1, MAX_ACTS=2, MAX_GENERATION=3, MAX_EPOCH=4, MAX_RESTORES=1, MAX_FAULTS=2)
_TWIN = _with(_ONE, MAX_TWINS=1)
_SPREAD = _with(PINNED=False)
_SET_BACK = _with(_TWO, _SPREAD, MAX_SINK_RESTORES=1, MAX_EPOCH=3, MAX_FAULTS=2)
_LOWER = _with(_ONE, MAX_LOWER=2, MAX_EPOCH=3, MAX_FAULTS=2)
_REWOUND_AND_RESTORED = _with(_REWOUND, _TWO, _SPREAD, RUNS=1, MAX_EPOCH=4, MAX_RESTORES=1, MAX_FAULTS=1)


def _of_fence(fence: str) -> list[Model]:
    """Return the configurations for one kind of fence."""
    size = _TWO if fence in ("postgres", "table") else _ONE
    return [
        model(fence, "crashes", _with(_TWO, MAX_TWINS=1)),
        model(fence, "takeovers", _with(_ONE, MAX_EPOCH=3)),
        model(fence, "verdicts", _VERDICTS),
        model(fence, "rewind", _with(_REWOUND, _TWO)),
        model(fence, "liveness", _with(_ALIVE, size), LIVE),
    ]


MODELS: Sequence[Model] = (
    *(found for fence in FENCES for found in _of_fence(fence)),
    model("postgres", "spread", _SPREAD),
    model("marker", "spread", _SPREAD),
    model("postgres", "holding", _with(_HELD, _SPREAD, _TWO)),
    model("postgres", "draining", _with(_DRAINED, _SPREAD)),
    model("postgres", "restored", _with(_RESTORED, _SPREAD)),
    model("kafka", "restored", _RESTORED),
    model("marker", "restored", _with(_RESTORED, MAX_FAULTS=1)),
    model("postgres", "restored and rewound", _REWOUND_TWICE),
    model("postgres", "rewound and restored", _REWOUND_AND_RESTORED),
    model("postgres", "sink set back", _SET_BACK),
    model("kafka", "sink set back", _with(_SET_BACK, MAX_FAULTS=1)),
    model("table", "sink set back", _SET_BACK),
    model("postgres", "lower positions", _LOWER),
    model("postgres", "purged", _with(_TWIN, PURGES=True)),
    model("kafka", "purged", _with(_TWIN, PURGES=True)),
    model("kafka", "neighbour", _with(_TWIN, NEIGHBOUR=True)),
    model("table", "created", _with(_TWIN, TABLE_EXISTS=False)),
    model("postgres", "one owner", _with(_TWO, ONE_OWNER=True)),
    model("postgres", "at most once", _with(_TWO, MAX_TWINS=1, DELIVERY="at_most_once")),
)
"""Every configuration."""


def _mutant(name: str, fence: str, expected: str, bounds: Bounds = _ONE) -> Mutant:
    return Mutant(name, model(fence, name, _with(bounds, MUTANT=name), (expected,)))


_OUT_OF_ORDER = _with(_TWO, _SPREAD, RUNS=1)
_ALIVE_ONE = _with(_ALIVE, _ONE)
_HOLDING = _with(EXHAUSTED=frozenset({"hold"}), RUNS=1)

MUTANTS: Sequence[Mutant] = (
    # The fence and the lanes
    _mutant("fence_does_not_wait", "postgres", "NoCommitByStaleEpoch"),
    _mutant("epoch_compared_the_wrong_way", "postgres", "NoCommitByStaleEpoch"),
    _mutant("receipts_read_before_the_fence", "postgres", "ReceiptsReadAreFinal"),
    _mutant("receipt_after_commit", "postgres", "NothingDoubled"),
    _mutant("last_claim_wins", "postgres", "NothingDoubled", _TWIN),
    _mutant("lane_goes_on_after_failure", "postgres", "PartitionOrderKept", _TWO),
    _mutant("kafka_epoch_not_read_again", "kafka", "NoCommitByStaleEpoch"),
    _mutant("kafka_newest_record_counts", "kafka", "NoCommitByStaleEpoch", _with(_ONE, MAX_EPOCH=3)),
    _mutant("kafka_ids_before_the_record", "kafka", "NoCommitByStaleEpoch"),
    _mutant("kafka_reads_to_the_stable_offset_only", "kafka", "NothingDoubled", _with(_TWIN, NEIGHBOUR=True)),
    _mutant("table_epoch_not_on_the_committing_handle", "table", "NoCommitByStaleEpoch"),
    _mutant("table_commit_is_retried", "table", "NoCommitByStaleEpoch"),
    _mutant("table_receipts_not_looked_up", "table", "NothingDoubled", _TWIN),
    _mutant("table_without_fence_file", "table", "NoCommitByStaleEpoch", _with(_ONE, TABLE_EXISTS=False)),
    _mutant("marker_overwrites", "marker", "NothingDoubled", _TWIN),
    _mutant("marker_believed_unplaced", "marker", "NothingLost"),
    # The ledger
    _mutant("ledger_takes_stale_epochs", "postgres", "OpenAttemptsAreTheHolders"),
    _mutant("open_attempts_left_at_takeover", "postgres", "NoBatchLeftBehind", _ALIVE_ONE),
    _mutant("failure_means_not_delivered", "postgres", "NeverDeliveredAndDeadLettered"),
    _mutant("planned_work_not_counted", "postgres", "PlannedWorkVisibleToCheckpoint", _OUT_OF_ORDER),
    _mutant("acks_out_of_order", "postgres", "CheckpointNeverAheadOfTerminalizedPrefix", _OUT_OF_ORDER),
    _mutant("lost_wave_not_noticed", "postgres", "EventualDrain", _ALIVE_ONE),
    _mutant("strangers_not_imported", "postgres", "NothingDoubled", _with(_RESTORED, _SPREAD)),
    _mutant("epoch_of_the_ledger_alone", "postgres", "ReceiptsReadAreFinal", _with(_RESTORED, _ONE)),
    _mutant("purge_of_the_own_epoch", "postgres", "NothingDoubled", _with(_TWIN, PURGES=True)),
    _mutant("sink_fence_not_compared", "postgres", "SinkLossIsTold", _SET_BACK),
    _mutant("settled_receipts_not_asked_for", "postgres", "SinkLossIsTold", _SET_BACK),
    _mutant("table_set_back_is_committed_to", "table", "SinkLossIsTold", _SET_BACK),
    _mutant("lower_positions_not_looked_for", "postgres", "LowerPositionsAreTold", _LOWER),
    _mutant("alarm_is_noted_as_seen", "postgres", "LowerPositionsAreTold", _LOWER),
    _mutant("done_without_a_look", "postgres", "LowerPositionsAreTold", _LOWER),
    # People
    _mutant("watermark_cleared_on_takeover", "postgres", "CancellationWatermarkBlocks", _with(_DRAINED, _ONE)),
    _mutant("cancelled_batch_not_begun_again", "postgres", "CancelledWorkCanFinish", _ALIVE_ONE),
    _mutant("held_counts_as_resolved", "postgres", "UnresolvedWorkNotCommittedPast", _with(_HOLDING, _ONE)),
    _mutant("held_batch_is_overtaken", "postgres", "PartitionOrderKept", _with(_HOLDING, _TWO)),
    _mutant("begun_batch_not_released", "postgres", "HeldBatchEventuallyReleased", _ALIVE_ONE),
    _mutant("skip_of_a_begun_batch", "postgres", "ReceiptMatchesBatch", _with(_HELD, _ONE)),
    _mutant("begins_while_draining", "postgres", "DrainMeansNoNewSending", _with(_DRAINED, _ONE)),
    _mutant("plans_while_draining", "postgres", "NoPlanAfterDrain", _with(_DRAINED, _ONE)),
    _mutant("stop_with_work_in_flight", "postgres", "DrainCompleteness", _with(_DRAINED, _ONE)),
    _mutant("force_stop_without_takeover", "postgres", "ForceStopAbandonsAllInFlight", _with(_DRAINED, _ONE)),
    _mutant("rewind_in_the_same_generation", "postgres", "CommittedMonotonic", _with(_REWOUND, _ONE)),
    _mutant("rewind_without_an_epoch", "postgres", "NoCommitByEndedGeneration", _with(_REWOUND, _ONE)),
    _mutant("forgotten_rewind_is_passed_over", "postgres", "GenerationIsNew", _REWOUND_TWICE),
    _mutant(
        "forgotten_rewind_begins_at_its_first_receipt",
        "postgres",
        "NothingLeftBehind",
        _REWOUND_AND_RESTORED,
    ),
)
"""Every mutant, with the property that must catch it."""
