"""Run one storm on one ledger: start the processes, disturb them, and judge the result."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store import migrate, tables
from tests.chaos.storm.calm import calm_down
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.evidence import LOST, STALE_ACCEPTED, Fault, gather
from tests.chaos.storm.journal import COUNTED, LOOK, Entry, Expect, Journal
from tests.chaos.storm.judge import judge
from tests.chaos.storm.judge_answers import stale_refused
from tests.chaos.storm.processes import Weather
from tests.chaos.storm.scene import Defect, Orders
from tests.chaos.storm.sink import AbstractSink
from tests.chaos.storm.watch import Watch

_BLOWS = 150
"""Times that something befalls a process, over a whole storm."""

_POLL = 0.02
"""Seconds between looks at the storm."""

_DEATHS = 20
"""Workers that may die by themselves before it is clear that all would."""

_TOLD = 20
"""Faults that the summary spells out."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a storm.

    :param commands: that the ledger has to decide on
    :param seconds: it is over after so long, whatever was reached
    """

    processes: int
    commands: int
    seed: int = 1
    seconds: float = 1800.0


def storm(
    ledger_url: str,
    sink_url: str,
    folder: Path,
    scale: Scale,
    *,
    defect: Defect | None = None,
    end_session: Callable[[], bool] | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run a storm on an empty ledger and sink, and return the summary, JSON-ready.

    :param folder: for the journals; must not hold any yet
    :param defect: break the ledger on purpose
    :param end_session: ends one session of either database from outside
    """
    folder.mkdir(parents=True, exist_ok=True)
    migrate.upgrade(ledger_url, create=True)
    sink = AbstractSink(sink_url)
    sink.make()
    started = time.monotonic()
    with Ledger.open(ledger_url) as ledger, Journal(folder / "watch.journal", "watch") as journal:
        watch = Watch(Commands(ledger, journal), ledger_url)
        orders = Orders(ledger_url, sink_url, folder, "", 0, str(scale.seed), defect)
        every = max(30, scale.commands // _BLOWS)
        with Weather(orders, scale.processes, Random(scale.seed), every, end_session) as weather:
            over = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                eyes = pool.submit(watch.until, over)
                try:
                    _rage(weather, watch, scale, tell)
                finally:
                    weather.thaw()
                    over.set()
            eyes.result()
        seconds = time.monotonic() - started
        if defect is Defect.CHECKPOINT:
            _move_a_checkpoint(ledger_url)
        watch.parked_state()
        for pipeline in ledger.pipelines():
            watch.collect(pipeline, timedelta(0))
        watch.faults += calm_down(watch.commands, sink)
        watch.parked_state()
    watch.close()
    sink.close()
    evidence = gather(ledger_url, sink_url, folder, watch)
    faults = list(dict.fromkeys([*watch.faults, *judge(evidence)]))
    summary = _summary(evidence.entries, faults, weather.befell, seconds)
    return summary | {
        "receipts": sum(map(len, evidence.sink.values())),
        "audits": watch.audits,
        "collected": watch.collected,
        "seed": scale.seed,
        "processes": scale.processes,
        "judged_in_seconds": round(time.monotonic() - started - seconds, 1),
    }


def shortcomings(summary: dict[str, Any], scale: Scale) -> list[str]:
    """Return the reasons for which a storm fails; empty if it passes.

    A storm in which nothing was killed, or nothing stale refused, has shown nothing.
    """
    found = [f"{summary[name]} {name}" for name in ("violations", "lost", "stale_accepted") if summary[name]]
    found += [f"no {name}" for name in ("kills", "stale_refused") if not summary[name]]
    if summary["commands"] < scale.commands:
        found.append(f"only {summary['commands']} of {scale.commands} commands")
    return found


def _rage(weather: Weather, watch: Watch, scale: Scale, tell: Callable[[str], None]) -> None:
    started = told = time.monotonic()
    before = 0
    while weather.commands < scale.commands and time.monotonic() < started + scale.seconds:
        if weather.befell["died"] > _DEATHS:
            raise RuntimeError("workers die by themselves, one after the other; see what they say")
        weather.blow()
        time.sleep(_POLL)
        now = time.monotonic()
        if now - told >= 5.0:
            rate = (weather.commands - before) / (now - told)
            befell = ", ".join(f"{number} {name}" for name, number in sorted(weather.befell.items()))
            tell(
                f"{now - started:5.0f} s  {weather.commands} of {scale.commands} commands, {rate:.0f} a second; "
                f"{befell}; {watch.audits} audits, {len(watch.faults)} faults"
            )
            told, before = now, weather.commands


def _move_a_checkpoint(url: str) -> None:
    """Move the checkpoint of a partition by hand, which nobody may do."""
    engine = engines.create_engine(engines.parse_url(url))
    c = tables.partition.c
    with engine.begin() as connection:
        connection.execute(tables.partition.update().where(c.side_end.is_(None)).values(committed=c.committed + 3))
    engine.dispose()


def _summary(entries: Sequence[Entry], faults: Sequence[Fault], befell: Counter[str], seconds: float) -> dict[str, Any]:
    commands = [entry for entry in entries if entry.do != LOOK]
    decided = [entry for entry in commands if entry.end in COUNTED and entry.process != "watch"]
    kinds = Counter(fault.kind for fault in faults)
    by_command: dict[str, Counter[str]] = {}
    for entry in commands:
        by_command.setdefault(entry.do, Counter())[entry.end] += 1
    faulty = befell["died"] + befell["stuck"]
    return {
        "commands": len(decided),
        "violations": len(faults) + faulty,
        "stale_refused": stale_refused(decided),
        "kills": befell["kills"],
        "lost": kinds[LOST],
        "stale_accepted": kinds[STALE_ACCEPTED],
        "stale_on_purpose": sum(entry.expect is Expect.STALE for entry in decided),
        "seconds": round(seconds, 1),
        "commands_per_second": round(len(decided) / seconds, 1),
        "befell": dict(sorted(befell.items())),
        "by_command": {name: dict(sorted(ends.items())) for name, ends in sorted(by_command.items())},
        "acts": _acts(commands),
        "faults": [str(fault) for fault in faults[:_TOLD]],
    }


def _acts(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Return the number of users' actions by result: applied at once, stored, refused."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.do in ("act", "act_under"):
            end = "kept" if entry.result.get("intent") is not None else entry.end.value
            end = "dry run" if entry.facts.get("dry_run") else end
            found.setdefault(entry.facts["act"]["kind"], Counter())[end] += 1
    return {kind: dict(sorted(ends.items())) for kind, ends in sorted(found.items())}
