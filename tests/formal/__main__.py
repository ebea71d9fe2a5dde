"""The whole proof: search the core, check the protocol with TLC, try the mutants; writes build/formal/summary.json.

``python -m tests.formal`` ends with 1 unless every property holds, every guard is reached and every mutant is caught.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.formal import mutants, search
from tests.formal.configurations import LARGE
from tests.formal.coverage import guards

SUMMARY = Path("build/formal/summary.json")
HOLDS = "holds"


def prove() -> dict[str, Any]:
    """Do all of it, one after the other, each on two processors."""
    from tests.formal import tlc

    _tell("\nThe core, searched")
    found = search.search_all(LARGE, tell=_tell)
    _tell("\nThe protocol, by TLC")
    checked = tlc.run_all(tell=_tell)
    _tell("\nMutants")
    caught = mutants.run_all(mutants.MUTANTS, tell=_tell)
    reached = [{"name": name, "reached": met} for name, met in guards(one.met for one in found)]
    return {
        "search": search.summary(found),
        "tlc": {name: value for name, value in checked.items() if name not in ("guards", "mutants")},
        "guards": [*reached, *checked["guards"]],
        "mutants": [*({"name": name, "caught_by": by} for name, by in caught.items()), *checked["mutants"]],
    }


def failures(summary: dict[str, Any]) -> list[str]:
    """Properties that do not hold, guards that were not reached, mutants that survived."""
    broken = [
        f"{part}: {' '.join(filter(None, (item.get('config'), item['name'])))}: {item['result']}"
        for part in ("search", "tlc")
        for item in summary[part]["properties"]
        if item["result"] != HOLDS
    ]
    missed = [f"never reached: {item['name']}" for item in summary["guards"] if not item["reached"]]
    survivors = [f"survived: {item['name']}" for item in summary["mutants"] if not item["caught_by"]]
    return [*broken, *missed, *survivors]


def table(summary: dict[str, Any], seconds: float) -> str:
    """The summary for a person."""
    rows = [
        (part, f"{summary[part]['states']:,} states", f"{len(summary[part]['properties'])} properties")
        for part in ("search", "tlc")
    ]
    rows.append(("guards", f"{sum(item['reached'] for item in summary['guards'])} reached", ""))
    rows.append(("mutants", f"{sum(bool(item['caught_by']) for item in summary['mutants'])} caught", ""))
    lines = [f"  {name:<10}{size:>22}  {more}" for name, size, more in rows]
    return "\n".join(["", *lines, f"  {seconds:.0f} s, {SUMMARY}"])


def main() -> int:
    """Prove it, write the summary, and say what fails."""
    started = time.monotonic()
    summary = prove()
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n")
    _tell(table(summary, time.monotonic() - started))
    found = failures(summary)
    for line in found:
        _tell(f"  FAILED {line}")
    return int(bool(found))


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
