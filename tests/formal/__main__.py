"""Run the whole proof: search the core, check the protocols with TLC, and test that all mutants are detected.

``python -m tests.formal`` writes ``build/formal/summary.json``, and ends with 1 unless every property holds, every
guard is reached and every mutant is detected.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.assurance import record
from tests.formal import mutants, search
from tests.formal.configurations import LARGE, SMALL
from tests.formal.coverage import guards

SUMMARY = Path("build/formal/summary.json")
HOLDS = "holds"
_SMALL_THEMES = frozenset({"spread", "lower positions", "receipt_after_commit", "done_without_a_look"})
"""Configurations and mutants of the specification that represent all of them in a small proof."""


def prove(*, small: bool = False) -> dict[str, Any]:
    """Do all of it, one after the other, each on two processors.

    :param small: whether a few seconds' worth of each kind is enough
    """
    from tests.formal import specification, tlc, tlc_models
    from tests.formal.specifications import SPECIFICATIONS

    _log("\nThe core, searched")
    found = search.search_all(SMALL if small else LARGE, log=_log)
    _log("\nThe protocol, by TLC")
    models = [model for model in tlc_models.MODELS if not small or model.theme in _SMALL_THEMES]
    broken = [mutant for mutant in tlc_models.MUTANTS if not small or mutant.model.theme in _SMALL_THEMES]
    checked = tlc.run_all(models, broken, log=_log)
    for one in SPECIFICATIONS:
        more = specification.run_all(one, _log, small=small)
        checked = {
            **checked,
            "states": checked["states"] + more["states"],
            **{part: [*checked[part], *more[part]] for part in ("properties", "guards", "mutants")},
        }
    _log("\nMutants")
    chosen = [mutant for mutant in mutants.MUTANTS if not small or mutant.configuration]
    caught = mutants.run_all(chosen[:: len(chosen) // 3] if small else chosen, log=_log)
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


def figures(summary: dict[str, Any], failed: list[str]) -> dict[str, Any]:
    """Return the figures of a proof.

    :param failed: what :func:`failures` found
    """
    caught = sum(bool(item["caught_by"]) for item in summary["mutants"])
    return {
        "states_searched": summary["search"]["states"],
        "states_checked_by_TLC": summary["tlc"]["states"],
        "properties": sum(len(summary[part]["properties"]) for part in ("search", "tlc")),
        "mutants_caught": f"{caught} of {len(summary['mutants'])}",
        "failures": failed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove it, write the summary, and say what fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal", description=__doc__)
    parser.add_argument("--small", action="store_true", help="only a few seconds' worth of each kind of proof")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    summary = prove(small=options.small)
    if options.small:
        summary["guards"] = []
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n")
    _log(table(summary, time.monotonic() - started))
    found = failures(summary)
    if not options.small:
        record("formal", figures(summary, found))
    for line in found:
        _log(f"  FAILED {line}")
    return int(bool(found))


def _log(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
