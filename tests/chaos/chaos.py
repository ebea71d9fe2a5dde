"""Kills, pauses and resets what replications stand on at random moments, over all pairs of connectors, and counts.

``python -m tests.chaos.chaos [--points 1000] [--minutes 90] [--seed N] [--pair kafka-kafka …]``: pipelines of 1,000
records, good, bad and filtered, in batches of ten run in a warm Spark until all is settled; meanwhile its workers and
their daemon get SIGKILL, connections are reset, sessions ended, servers paused and killed; one point in fifteen kills a
driver, a process of its own with Spark in it. Then target, dead letters and receipts must agree with the source. At
last each pair is deceived in every way that ``havoc/deceptions.py`` knows: told or equal, never neither. Writes
``build/chaos/summary.json``; exit status 1 for anything lost, doubled or out of order, any receipt whose sum is wrong,
or fewer points than asked for. Evidence of a fault is in ``build/chaos/failures``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.assurance import is_whole, record
from tests.chaos.havoc.act import Report
from tests.chaos.havoc.campaign import FAILURES, Campaign, Plan, Tally, shortcomings
from tests.chaos.havoc.deceptions import play_all
from tests.chaos.havoc.driver import PRELOADED
from tests.chaos.havoc.ground import Ground
from tests.chaos.havoc.pairs import PAIRS

FOLDER = Path("build/chaos")
_A_LINE_EVERY = 20.0

Tell = Callable[[Report, Tally], None]


@contextmanager
def progress(points: int) -> Iterator[Tell]:
    """A bar on a terminal, else a line now and then; an act with faults always gets one.

    :param points: how many are to come
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("crash points", total=points)
        said = time.monotonic()

        def tell(report: Report, tally: Tally) -> None:
            nonlocal said
            bar.update(task, completed=len(tally.hits), description=tally.brief())
            if report.faults:
                console.print(f"{report.name}: {'; '.join(report.faults)}", markup=False)
            elif not console.is_terminal and time.monotonic() - said > _A_LINE_EVERY:
                console.print(f"{len(tally.hits)} of {points} crash points, {tally.brief()}", highlight=False)
                said = time.monotonic()

        yield tell


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Send standard error of processes that are started now to a file, and keep our own."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Strike, print, and say by the exit status whether everything balanced."""
    from tests.services.spark import local_session

    names = [str(pair) for pair in PAIRS]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.chaos", description=__doc__)
    parser.add_argument("--points", type=int, default=Plan().points, help="how many crash points (default: 1000)")
    parser.add_argument("--minutes", type=float, default=Plan().minutes, help="how long at most (default: 90)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="draws all that is random (default: the time)"
    )
    parser.add_argument("--pair", action="append", choices=names, help="only this pair; may be given several times")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in PAIRS if not options.pair or str(pair) in options.pair]
    plan = Plan(options.points, options.minutes, options.seed, pairs)
    folder = FOLDER.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"seed {plan.seed}", flush=True)
    logging.basicConfig(filename=folder / "runs.log", level=logging.INFO, format="%(asctime)s %(message)s")
    with Ground(folder / "data") as ground:
        with _errors_to(folder / "spark.log"):
            spark = local_session(PRELOADED)
        with progress(plan.points) as tell:
            summary = Campaign(ground, spark, folder, plan, tell=tell).run()
        outcomes = play_all(ground, spark, pairs, plan.seed, tell=lambda outcome: print(outcome, flush=True))
        summary["deceptions"] = [outcome.to_json() for outcome in outcomes]
        summary["told_or_equal"] = f"{sum(not outcome.faults for outcome in outcomes)} of {len(outcomes)} deceptions"
        spark.stop()
    missed = shortcomings(summary) + [f"{found.name}: {'; '.join(found.faults)}" for found in outcomes if found.faults]
    summary["shortcomings"] = missed
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if not missed:
        shutil.rmtree(folder / "data")
    brief = ("crash_points", "lost", "doubled_on_transactional", "told_or_equal", "by_kind", "seconds", "seed")
    if is_whole(parser, options):
        record("chaos", {name: summary[name] for name in brief} | {"failures": missed})
    print(json.dumps({name: summary[name] for name in brief}, indent=2))
    print("\n".join(missed) or "nothing lost, nothing doubled, every sum adds up")
    print(f"{FOLDER}/summary.json" + (f"; evidence: {FOLDER}/{FAILURES}" if summary["faults"] else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
