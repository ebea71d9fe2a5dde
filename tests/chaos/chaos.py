"""Kill, pause and reset the processes and servers of replications at random moments, and count lost or doubled records.

``python -m tests.chaos.chaos [--points 1000] [--minutes 90] [--kills 20] [--seed N] [--pair kafka-kafka …]``:

* Crash points, on all pairs of connectors: pipelines of 1,000 records (good, bad and filtered) in batches of ten run in
  a warm Spark until all batches are settled. Meanwhile Spark's Python workers and their daemon get SIGKILL, connections
  are reset, sessions are ended, and servers are paused and killed. One point in fifteen kills a driver, which is then a
  separate process with Spark in it. Afterwards target, dead letters and receipts must agree with the source.
* Disturbances: for each pair, source, sink and ledger are changed in every way that ``crash_points/disturbances.py``
  lists. The next run must report the change or repair it.
* Process kills: ``airflow ckpt run`` is killed as a whole or in part, see ``process_kills/kill_runs.py``.

Writes ``build/chaos/summary.json``. The exit status is 1 if any record was lost, duplicated or out of order, if a
receipt's sum is wrong, or if there were fewer points or kills than requested. Evidence of a fault is in
``build/chaos/failures``.
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
from tests.chaos.crash_points.campaign import FAILURES, Campaign, Plan, Tally, shortcomings
from tests.chaos.crash_points.disturbances import play_all
from tests.chaos.crash_points.driver_process import PRELOADED
from tests.chaos.crash_points.pairs import PAIRS
from tests.chaos.crash_points.servers import Servers
from tests.chaos.crash_points.trial import Report
from tests.chaos.process_kills import kill_runs

FOLDER = Path("build/chaos")
_A_LINE_EVERY = 20.0

Tell = Callable[[Report, Tally], None]


@contextmanager
def progress(points: int) -> Iterator[Tell]:
    """Show the progress: a bar on a terminal, else a line now and then, and a line for each trial with faults.

    :param points: number of crash points to come
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
    """Redirect the standard error of processes that are started now to a file; that of this process stays."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print the results, and return exit status 0 if nothing was lost or doubled."""
    from tests.services.spark import local_session

    names = [str(pair) for pair in PAIRS]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.chaos", description=__doc__)
    parser.add_argument("--points", type=int, default=Plan().points, help="how many crash points (default: 1000)")
    parser.add_argument("--minutes", type=float, default=Plan().minutes, help="how long at most (default: 90)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="draws all that is random (default: the time)"
    )
    parser.add_argument("--kills", type=int, default=20, help="how many runs to kill as processes (default: 20)")
    parser.add_argument("--pair", action="append", choices=names, help="only this pair; may be given several times")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in PAIRS if not options.pair or str(pair) in options.pair]
    plan = Plan(options.points, options.minutes, options.seed, pairs)
    folder = FOLDER.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"seed {plan.seed}", flush=True)
    logging.basicConfig(filename=folder / "runs.log", level=logging.INFO, format="%(asctime)s %(message)s")
    with Servers(folder / "data") as servers:
        with _errors_to(folder / "spark.log"):
            spark = local_session(PRELOADED)
        with progress(plan.points) as tell:
            summary = Campaign(servers, spark, folder, plan, tell=tell).run()
        outcomes = play_all(servers, spark, pairs, plan.seed, tell=lambda outcome: print(outcome, flush=True))
        summary["disturbances"] = [outcome.to_json() for outcome in outcomes]
        summary["told_or_equal"] = f"{sum(not outcome.faults for outcome in outcomes)} of {len(outcomes)} disturbances"
        spark.stop()
    summary["process_kills"] = killed = kill_runs.run(options.kills, folder / "process_kills", seed=plan.seed)
    summary["killed_processes"] = killed["kills"]
    missed = shortcomings(summary) + [f"{found.name}: {'; '.join(found.faults)}" for found in outcomes if found.faults]
    missed += [f"{moment}: {'; '.join(faults)}" for moment, faults in killed["faults"].items()]
    if killed["moments"] != options.kills:
        missed.append(f"{killed['moments']} of {options.kills} runs were killed")
    summary["shortcomings"] = missed
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if not missed:
        shutil.rmtree(folder / "data")
    figures = (
        "crash_points",
        "lost",
        "doubled_on_transactional",
        "told_or_equal",
        "by_kind",
        "killed_processes",
        "seconds",
        "seed",
    )
    brief = {name: summary[name] for name in figures}
    if is_whole(parser, options):
        record("chaos", brief | {"failures": missed})
    print(json.dumps(brief, indent=2))
    print("\n".join(missed) or "nothing lost, nothing doubled, every sum adds up")
    print(f"{FOLDER}/summary.json" + (f"; evidence: {FOLDER}/{FAILURES}" if summary["faults"] else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
