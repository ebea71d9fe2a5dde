"""Measure the page *Replication* on a big ledger: its queries, its API, its first paint, and its frames per second.

``python -m tests.benchmarks.page [--receipts 10000000]``. There are two ledgers in PostgreSQL, with 300 pipelines of
20,000 open batches each. One has 10,000 receipts and 100 schema versions; the other has 10,000 schema versions, and as
many receipts as the option says. The queries are measured on both in turn; the API server and the browser use the big
ledger. Writes ``build/bench/page.json``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.pages import BatchFilter
from tests.assurance import is_whole
from tests.benchmarks.page_ledger import BIG, fill
from tests.benchmarks.rounds import publish, say
from tests.services.airflow import AirflowServices
from tests.services.browser import page_of
from tests.services.postgres import LARGE_WAL, PostgresServer, sqlalchemy_url

if TYPE_CHECKING:
    from playwright.sync_api import Page

RESULT = Path("build/bench/page.json")
SMALL = 10_000
VERSIONS = {"small": 100, "big": 10_000}
LIMITS = {"overview": 150, "line": 100, "batches": 100}
"""Milliseconds of an answer of the API at the 95th percentile."""

RATIO = 1.3
"""Maximum ratio of a query's median time on the big ledger to that on the small one."""

FIRST_PAINT = 1500
FRAMES = 30
_PATHS = {"overview": "/pipelines", "line": f"/pipelines/{BIG}/line", "batches": f"/pipelines/{BIG}/batches"}
_WARM_UP = 5
_PAINTED = """selector => new Promise(resolve => {
  const look = () => document.querySelector(selector) === null
    ? requestAnimationFrame(look) : requestAnimationFrame(() => resolve(performance.now()));
  look();
})"""
_COUNT = """() => {
  window.frames_seen = [];
  const count = at => { window.frames_seen.push(at); requestAnimationFrame(count); };
  requestAnimationFrame(count);
}"""


def queries(ledger: Ledger) -> Mapping[str, Callable[[], object]]:
    """Return the queries behind the three answers."""
    return {
        "overview": ledger.overview,
        "line": lambda: ledger.lines(BIG, limit=21, buckets=400),
        "batches": lambda: ledger.batch_page(BIG, BatchFilter(), limit=51),
    }


def in_turn(ledgers: Mapping[str, Ledger], number: int) -> dict[str, list[float]]:
    """Return the milliseconds of each query of each ledger, asked in turn."""
    found: dict[str, list[float]] = {}
    for at in range(number + _WARM_UP):
        for name, ledger in ledgers.items():
            for what, ask in queries(ledger).items():
                started = time.perf_counter()
                ask()
                if at >= _WARM_UP:
                    found.setdefault(f"{name} {what}", []).append(1000 * (time.perf_counter() - started))
    return found


def of_api(airflow: AirflowServices, number: int) -> dict[str, list[float]]:
    """Return the milliseconds of each answer of the API."""
    found: dict[str, list[float]] = {}
    headers = {"Authorization": f"Bearer {airflow.token()}"}
    for at in range(number + _WARM_UP):
        for what, path in _PATHS.items():
            started = time.perf_counter()
            with urlopen(Request(f"{airflow.url}/ckpt/api{path}", headers=headers), timeout=60) as answer:
                answer.read()
            if at >= _WARM_UP:
                found.setdefault(what, []).append(1000 * (time.perf_counter() - started))
    return found


def first_paint(page: Page) -> float:
    """Return the milliseconds from the navigation until the list's first pipeline is painted."""
    page.goto("/plugin/replication", wait_until="commit")
    return float(page.evaluate(_PAINTED, "[data-pipeline]"))


def frames(page: Page) -> dict[str, float]:
    """Return the frames a second while the mouse drags over the line of 20,000 batches and zooms in and out."""
    page.goto(f"/plugin/replication/pipelines/{BIG}/line")
    box = page.get_by_label("Number line of partition t").bounding_box()
    assert box is not None
    page.evaluate(_COUNT)
    middle = box["y"] + box["height"] / 2
    for start in (0.1, 0.3, 0.5):
        page.mouse.move(box["x"] + box["width"] * start, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * (start + 0.4), middle, steps=40)
        page.mouse.up()
        page.wait_for_timeout(300)
        whole = page.get_by_role("button", name="Show all")
        if whole.is_enabled():  # a machine that is busy may have missed the drag
            whole.click()
        page.wait_for_timeout(300)
    seen = page.evaluate("() => window.frames_seen")
    gaps = [later - earlier for earlier, later in itertools.pairwise(seen)]
    return {"per_second": 1000 * len(gaps) / sum(gaps), "gap_p95_ms": _p95(gaps)}


def run(receipts: int, pipelines: int, batches: int, number: int) -> dict[str, Any]:
    """Make both ledgers, and measure.

    :param receipts: receipts of the big ledger
    :param pipelines: pipelines of each
    :param batches: open batches of each
    :param number: how often each is asked
    """
    with PostgresServer(LARGE_WAL) as server, ExitStack() as stack:
        urls = {name: sqlalchemy_url(server.new_database()) for name in ("small", "big")}
        for name, count in {"small": SMALL, "big": receipts}.items():
            started = time.monotonic()
            fill(urls[name], pipelines=pipelines, receipts=count, batches=batches, versions=VERSIONS[name])
            say(f"{count:,} receipts made in {time.monotonic() - started:.0f} s")
        ledgers = {name: stack.enter_context(Ledger.open(url)) for name, url in urls.items()}
        asked = in_turn(ledgers, number)
        say(f"p95 of the queries in ms: { {name: round(_p95(values)) for name, values in asked.items()} }")
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckpt-bench-page-")))
        (home / "dags").mkdir()
        airflow = AirflowServices(
            home / "airflow",
            home / "dags",
            {"AIRFLOW__CKPT__SQL_ALCHEMY_CONN": urls["big"]},
            users={"ada": "admin"},
            pages_only=True,
        )
        with airflow:
            answered = of_api(airflow, number)
            say(f"p95 of the answers in ms: { {name: round(_p95(values)) for name, values in answered.items()} }")
            with page_of(airflow.url, "ada", airflow.passwords["ada"], size=(1360, 720)) as page:
                paints = [first_paint(page) for _ in range(5)]
                drawn = frames(page)
    medians = {name: statistics.median(values) for name, values in asked.items()}
    return {
        "receipts": receipts,
        "api_p95_ms": {what: round(_p95(values), 1) for what, values in answered.items()},
        "query_p95_ms": {name: round(_p95(values), 1) for name, values in asked.items()},
        "ratio_to_10k_receipts": {what: round(medians[f"big {what}"] / medians[f"small {what}"], 2) for what in LIMITS},
        "first_paint_ms": round(statistics.median(paints)),
        "first_paints_ms": [round(value) for value in paints],
        "frames_per_second": round(drawn["per_second"], 1),
        "frame_gap_p95_ms": round(drawn["gap_p95_ms"], 1),
    }


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def report(result: Mapping[str, Any]) -> None:
    """Print what was found beside what was to be reached."""
    rows: list[tuple[str, float, str, float]] = [
        (f"API, {what}, p95 in ms", result["api_p95_ms"][what], "≤", limit) for what, limit in LIMITS.items()
    ]
    rows += [(f"{what}, many receipts to few", result["ratio_to_10k_receipts"][what], "≤", RATIO) for what in LIMITS]
    rows += [("first paint in ms", result["first_paint_ms"], "≤", FIRST_PAINT)]
    rows += [("frames a second", result["frames_per_second"], "≥", FRAMES)]
    for what, value, sign, limit in rows:
        reached = value <= limit if sign == "≤" else value >= limit
        print(f"{what:36} {value:>10,} {sign} {limit:>6,}  {'reached' if reached else 'MISSED'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.page", description=__doc__)
    parser.add_argument("--receipts", type=int, default=10_000_000, help="receipts of the big ledger")
    parser.add_argument("--pipelines", type=int, default=300, help="pipelines of each ledger")
    parser.add_argument("--batches", type=int, default=20_000, help="open batches of each ledger")
    parser.add_argument("--number", type=int, default=100, help="how often each query is asked")
    options = parser.parse_args(arguments)
    result = run(options.receipts, options.pipelines, options.batches, options.number)
    shown = ("api_p95_ms", "ratio_to_10k_receipts", "first_paint_ms", "frames_per_second")
    publish(result, RESULT, shown, target="bench-page" if is_whole(parser, options) else "")
    report(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
