"""Checks ``ObjectStore.tla``, the protocol of the files sink in an object store, with TLC.

``python -m tests.formal.object_store_model`` checks it alone; ``python -m tests.formal`` includes it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.formal import tlc
from tests.formal.tlc_models import Bounds

_MODULE = Path(__file__).with_name("ObjectStore.tla")
_INVARIANTS = ("NoCommitByStaleEpoch", "AtMostOneVerdictPerBatch", "VisibleHasReceipt", "ReceiptHasItsRows")
_STEPS = ("ReceiptsStay", "VisibleStays")
_REACHED = ("NeverTwoFences", "NeverVisible", "NeverRefused")
"""Invariants that must fail: situations without which the others would say nothing."""

_MUTANTS: Mapping[str, str] = {
    "condition_ignored": "NoCommitByStaleEpoch",
    "fence_reads_alone": "NoCommitByStaleEpoch",
    "sweep_before_the_fence": "ReceiptHasItsRows",
    "sweep_publishes_nothing": "ReceiptHasItsRows",
    "visible_before_the_commit": "VisibleHasReceipt",
    "receipts_not_read": "AtMostOneVerdictPerBatch",
    "unknown_counts_as_failed": "ReceiptHasItsRows",
    "removed_before_the_copy": "ReceiptHasItsRows",
}
"""The property that each mutant breaks."""

_OF_TWINS = frozenset({"receipts_not_read"})
"""Mutants that only a lane that is executed twice shows."""

_BOUNDS: Sequence[Bounds] = (
    {"MAX_EPOCH": 2, "BATCHES": frozenset({"b1", "b2"}), "TWINS": frozenset({1}), "MAX_VERSION": 4},
    {"MAX_EPOCH": 2, "BATCHES": frozenset({"b1"}), "TWINS": frozenset({1, 2}), "MAX_VERSION": 4},
)
"""Configurations: two batches, and one batch that a lane executes twice."""

_NAME = "object store"


def run_all(log: tlc.Log = print) -> dict[str, Any]:
    """Check every property, that each situation is reached, and every mutant; the result is as of :func:`tlc.run_all`.

    :raises TlcError: if TLC cannot be run, or does not understand the specification
    """
    checked = [_check(bounds, "none", _INVARIANTS, _STEPS) for bounds in _BOUNDS]
    for states, violated in checked:
        log(f"  {_NAME}: {violated or 'holds'}, {states:,} states")
    reached = {name: _check(_BOUNDS[0], "none", (name,))[1] == name for name in _REACHED}
    caught = {}
    for mutant, expected in _MUTANTS.items():
        found = _check(_BOUNDS[mutant in _OF_TWINS], mutant, (expected,))[1]
        log(f"  mutant {_NAME}/{mutant}: {found or 'survives'}")
        caught[mutant] = found
    return {
        "states": sum(states for states, _ in checked),
        "properties": [
            {"name": name, "config": _NAME, "result": "violated" if name == violated else tlc.HOLDS}
            for _, violated in checked
            for name in (*_INVARIANTS, *_STEPS)
        ],
        "guards": [{"name": f"tlc: {_NAME}: {name}", "reached": met} for name, met in reached.items()],
        "mutants": [{"name": f"{_NAME}: {name}", "caught_by": by} for name, by in caught.items()],
    }


def _check(
    bounds: Bounds, mutant: str, invariants: tuple[str, ...], steps: tuple[str, ...] = ()
) -> tuple[int, str | None]:
    """Return the number of distinct states, and the property that fails, if one does.

    :param bounds: constants of the configuration
    :param mutant: the rule that is switched off, or ``none``
    :param invariants: invariants to check
    :param steps: properties of steps to check
    """
    constants = [f"  {name} = {tlc.to_tla(value)}" for name, value in {**bounds, "MUTANT": mutant}.items()]
    lines = ["SPECIFICATION Spec", "CONSTANTS", *constants, "INVARIANTS", *(f"  {name}" for name in invariants)]
    if steps:
        lines += ["PROPERTIES", *(f"  {name}" for name in steps)]
    return tlc.judge(_NAME, tlc.run([_MODULE], "\n".join(lines) + "\n"))


def main() -> int:
    """Check it; 1 if something is wrong."""
    found = run_all()
    wrong = [line["name"] for line in found["properties"] if line["result"] != tlc.HOLDS]
    wrong += [line["name"] for line in found["guards"] if not line["reached"]]
    wrong += [line["name"] for line in found["mutants"] if not line["caught_by"]]
    print(f"wrong: {wrong or 'nothing'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
