"""Breadth-first search over the core: each world within a configuration's bounds is visited and checked.

``python -m tests.formal.search small|large [NAME]`` searches, and prints the shortest path to a violated property.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from tests.formal.configurations import LARGE, SMALL
from tests.formal.coverage import Met, guards
from tests.formal.expectations import PROPERTIES
from tests.formal.finish import Finish
from tests.formal.moves import Move, Moves
from tests.formal.pool import BrokenError, Pool
from tests.formal.worlds import Bounds, World


@dataclass
class Found:
    """The findings of the search of one configuration.

    :param states: distinct worlds
    :param depth: moves on the longest of all shortest ways
    :param places: distinct states of a partition
    :param broken: by property, what was found; empty if all hold
    :param trace: the moves that lead there
    """

    name: str
    bounds: Mapping[str, Any]
    states: int = 0
    moves: int = 0
    depth: int = 0
    seconds: float = 0.0
    places: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    met: Met = field(default_factory=Met)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.states:,} states, {self.moves:,} moves, depth {self.depth}, "
            f"{self.places:,} partition states, {self.seconds:.1f} s"
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict: bounds and size."""
        return {
            **self.bounds,
            "states": self.states,
            "moves": self.moves,
            "depth": self.depth,
            "seconds": round(self.seconds, 1),
        }


def search(name: str, bounds: Bounds) -> Found:
    """Search one configuration, until it is exhausted or a property breaks."""
    found = Found(name, bounds.to_json())
    collecting = gc.isenabled()
    gc.disable()  # millions of tuples, and no cycles among them
    try:
        _search(bounds, found)
    finally:
        if collecting:
            gc.enable()
    return found


def _search(bounds: Bounds, found: Found) -> None:
    started = time.monotonic()
    moves = Moves(bounds, Pool(found.met))
    finish = Finish(moves)
    first = moves.first()
    came_by: dict[World, tuple[World, Move] | None] = {first: None}
    level = [first]
    while level and not found.broken:
        following: list[World] = []
        for world in level:
            try:
                for move, after in moves.after(world):
                    found.moves += 1
                    if after not in came_by:
                        came_by[after] = (world, move)
                        following.append(after)
                finish.check(world)
            except BrokenError as broken:
                found.broken = {violation.name: violation.message for violation in broken.violations}
                found.trace = _trace(came_by, world)
                break
        found.depth += bool(following)
        level = following
    found.states, found.places = len(came_by), len(moves.pool.places)
    found.seconds = time.monotonic() - started


def _trace(came_by: Mapping[World, tuple[World, Move] | None], world: World) -> list[str]:
    steps: list[str] = []
    at = came_by[world]
    while at is not None:
        world, move = at
        steps.append(f"{move[0]} {move[1]}")
        at = came_by[world]
    return steps[::-1]


def search_all(configurations: Mapping[str, Bounds], *, log: Callable[[str], None], processes: int = 2) -> list[Found]:
    """Search several configurations at once.

    :param log: called with the result of each
    """
    found: dict[str, Found] = {}
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed(pool.submit(search, *item) for item in configurations.items()):
            one = done.result()
            found[one.name] = one
            log("\n".join([str(one), *_lines(one)]))
    return [found[name] for name in configurations]


def _lines(found: Found) -> list[str]:
    steps = [f"  {number:2} {step}" for number, step in enumerate(found.trace, 1)]
    return steps + [f"  BROKEN {name}: {message}" for name, message in found.broken.items()]


def summary(found: list[Found]) -> dict[str, Any]:
    """Return the part of ``build/formal/summary.json`` about the search."""
    broken = {name: message for one in found for name, message in one.broken.items()}
    return {
        "bounds": {one.name: one.to_json() for one in found},
        "states": sum(one.states for one in found),
        "properties": [{"name": name, "result": broken.get(name, "holds")} for name in PROPERTIES],
    }


def missed(found: list[Found]) -> list[str]:
    """Return the goals that were not reached."""
    return [name for name, reached in guards(one.met for one in found) if not reached]


def main(size: str, *names: str) -> int:
    """Search; 1 if a property is broken, or, of all configurations of a size together, something was not reached."""
    chosen = {"small": SMALL, "large": LARGE}[size]
    found = search_all({name: chosen[name] for name in names or chosen}, log=lambda line: print(line, flush=True))
    lacking = [] if names else missed(found)
    for name in lacking:
        print(f"never reached: {name}")
    return int(bool(lacking) or any(one.broken for one in found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
