"""Check a specification of one protocol with TLC: its properties, its guards, and its mutants.

``python -m tests.formal.specification [NAME…]`` checks those of :data:`SPECIFICATIONS` whose name contains one of the
words; ``python -m tests.formal`` checks all of them. ``Protocol.tla`` is checked by ``tlc.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.formal import tlc
from tests.formal.tlc_models import Bounds


@dataclass(frozen=True, slots=True)
class Specification:
    """A specification of one protocol; its constant ``MUTANT`` switches off one rule.

    :param name: the protocol, for reports
    :param module: file of the specification, beside this one
    :param bounds: the other constants, for each configuration by its name; the first one is enough for a small proof
    :param invariants: invariants of every state
    :param steps: properties of every step
    :param mutants: by name of the rule that is switched off, the configuration and the property that breaks there
    :param reached: by name of an invariant that must fail, the configuration in which it does; each is a situation
        without which the other properties would say nothing
    :param live: by name of a property of whole behaviours under ``LiveSpec``, the configuration to check
    """

    name: str
    module: str
    bounds: Mapping[str, Bounds]
    invariants: Sequence[str]
    steps: Sequence[str]
    mutants: Mapping[str, tuple[str, str]]
    reached: Mapping[str, str]
    live: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Check:
    """One run of TLC.

    :param bounds: name of the configuration
    :param properties: names of the properties to check, which are either all live or none
    :param mutant: the rule that is switched off, or ``none``
    """

    specification: Specification
    bounds: str
    properties: Sequence[str]
    mutant: str = "none"

    @property
    def name(self) -> str:
        """Protocol, and configuration or mutant."""
        return f"{self.specification.name}/{self.bounds if self.mutant == 'none' else self.mutant}"

    @property
    def is_live(self) -> bool:
        """Return whether the properties are of whole behaviours."""
        return any(name in self.specification.live for name in self.properties)

    def run(self) -> tuple[int, str | None]:
        """Return the number of distinct states, and the property that fails, if one does."""
        constants = {**self.specification.bounds[self.bounds], "MUTANT": self.mutant}
        invariants = [name for name in self.properties if not self._is_temporal(name)]
        temporal = [name for name in self.properties if self._is_temporal(name)]
        lines = [f"SPECIFICATION {'LiveSpec' if self.is_live else 'Spec'}", "CONSTANTS"]
        lines += [f"  {name} = {tlc.to_tla(value)}" for name, value in constants.items()]
        lines += ["INVARIANTS", *(f"  {name}" for name in invariants)] if invariants else []
        lines += ["PROPERTIES", *(f"  {name}" for name in temporal)] if temporal else []
        module = Path(__file__).with_name(self.specification.module)
        states, violated = tlc.judge(self.name, tlc.run([module], "\n".join(lines) + "\n"))
        unnamed = violated is not None and violated not in self.properties
        return states, self.properties[0] if unnamed else violated  # TLC names no property of whole behaviours

    def _is_temporal(self, name: str) -> bool:
        return name in self.specification.steps or name in self.specification.live


def run_all(specification: Specification, log: tlc.Log = print, *, small: bool = False) -> dict[str, Any]:
    """Check every property, that each situation is reached, and every mutant; the result is as of :func:`tlc.run_all`.

    :param specification: the specification
    :param log: called with one line about each configuration and mutant
    :param small: whether the first configuration and the first mutant are enough
    :raises TlcError: if TLC cannot be run, or does not understand the specification
    """
    properties = [*specification.invariants, *specification.steps]
    checks = [_Check(specification, bounds, properties) for bounds in specification.bounds]
    checks += [_Check(specification, bounds, [name]) for name, bounds in specification.live.items()]
    mutants = [
        _Check(specification, bounds, [name], mutant) for mutant, (bounds, name) in specification.mutants.items()
    ]
    guards = [_Check(specification, bounds, [name]) for name, bounds in specification.reached.items()]
    if small:
        checks, mutants, guards = checks[:1], mutants[:1], []
    with ThreadPoolExecutor(tlc.PROCESSES) as pool:
        checked = list(zip(checks, pool.map(_Check.run, checks), strict=True))
        for check, (states, violated) in checked:
            log(f"  {check.name}: {violated or 'holds'}, {states:,} states")
        reached = {
            check.properties[0]: found for check, (_, found) in zip(guards, pool.map(_Check.run, guards), strict=True)
        }
        caught = {}
        for check, (_, found) in zip(mutants, pool.map(_Check.run, mutants), strict=True):
            log(f"  mutant {check.name}: {found or 'survives'}")
            caught[check.mutant] = found
    return {
        "states": sum(states for _, (states, _) in checked),
        "properties": [
            {"name": name, "config": check.name, "result": "violated" if name == violated else tlc.HOLDS}
            for check, (_, violated) in checked
            for name in check.properties
        ],
        "guards": [
            {"name": f"tlc: {specification.name}: {name}", "reached": found == name} for name, found in reached.items()
        ],
        "mutants": [{"name": f"{specification.name}: {name}", "caught_by": by} for name, by in caught.items()],
    }


def main(*words: str) -> int:
    """Check what the words name, or everything; 1 if something is wrong."""
    from tests.formal.specifications import SPECIFICATIONS

    wrong: list[str] = []
    for specification in SPECIFICATIONS:
        if not words or any(word in specification.name for word in words):
            found = run_all(specification)
            wrong += [line["name"] for line in found["properties"] if line["result"] != tlc.HOLDS]
            wrong += [line["name"] for line in found["guards"] if not line["reached"]]
            wrong += [line["name"] for line in found["mutants"] if not line["caught_by"]]
    print(f"wrong: {wrong or 'nothing'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
