"""Send random commands from many processes to one ledger, kill and freeze some of the processes, and check the ledger.

``python -m tests.chaos.ledger_storm [--commands 20000] [--processes 8] [--seed 1]``: on PostgreSQL, then with fewer
commands on SQLite. Writes ``build/storm/summary.json``; the exit status is 1 for any violation, any acknowledged
command that was lost, any stale write that was accepted, and for a storm that proves nothing: without a kill, without a
stale command, or with fewer commands than requested.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.assurance import is_whole, record
from tests.chaos.storm.scene import Defect
from tests.chaos.storm.storm import Scale, shortcomings, storm
from tests.services.postgres import PostgresServer
from tests.services.tables import execute

FOLDER = Path("build/storm")
SMALL = Scale(processes=4, commands=1500)
"""The storm on SQLite, which lets one process write at a time; it is never larger than the one on PostgreSQL."""

_END_ONE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = ANY(%s) AND backend_type = 'client backend' ORDER BY random() LIMIT 1
"""


_BRIEF = ("commands", "violations", "stale_refused", "kills", "commands_per_second")


def on_postgres(
    server: PostgresServer, folder: Path, scale: Scale, *, tell: Callable[[str], None] = print
) -> dict[str, Any]:
    """A storm on PostgreSQL, with sessions ended under their processes; ledger and sink have a database each."""
    ledger, sink = server.new_database(), server.new_database()
    # Nothing but clients dies here, so the sink need not wait for the disk.
    execute(server.dsn, f'ALTER DATABASE "{_name(sink)}" SET synchronous_commit = off')

    def end_session() -> bool:
        return bool(execute(server.dsn, _END_ONE, parameters=[[_name(ledger), _name(sink)]]))

    return storm(ledger, sink, folder, scale, end_session=end_session, tell=tell)


def on_sqlite(
    folder: Path, scale: Scale, *, defect: Defect | None = None, tell: Callable[[str], None] = print
) -> dict[str, Any]:
    """A storm on SQLite; ledger and sink have a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger, sink = (f"sqlite:///{folder.absolute()}/{name}.db" for name in ("ledger", "sink"))
    return storm(ledger, sink, folder, scale, defect=defect, tell=tell)


def _name(dsn: str) -> str:
    return dsn.rpartition("/")[2]


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storms, print the results, and return exit status 0 if the ledger made no error."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.ledger_storm", description=__doc__)
    parser.add_argument("--commands", type=int, default=20_000, help="on PostgreSQL (default: 20000)")
    parser.add_argument("--processes", type=int, default=8, help="on PostgreSQL (default: 8)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all random numbers (default: the time)")
    options = parser.parse_args(arguments)
    _say(f"seed {options.seed}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    big = Scale(options.processes, options.commands, options.seed)
    small = Scale(min(SMALL.processes, options.processes), min(SMALL.commands, options.commands), options.seed)
    with PostgresServer(in_memory=True) as server:
        _say(f"PostgreSQL: {big.processes} processes")
        summary = on_postgres(server, FOLDER / "postgres", big, tell=_say)
    _say(f"SQLite: {small.processes} processes")
    summary["sqlite"] = on_sqlite(FOLDER / "sqlite", small, tell=_say)
    missed = shortcomings(summary, big) + [f"SQLite: {item}" for item in shortcomings(summary["sqlite"], small)]
    summary["shortcomings"] = missed
    (FOLDER / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    parts = {"PostgreSQL": summary, "SQLite": summary["sqlite"]}
    if is_whole(parser, options):
        counts = {name: {key: part[key] for key in _BRIEF} for name, part in parts.items()}
        record("ledger-storm", counts | {"failures": missed})
    for name, part in parts.items():
        brief = {key: part[key] for key in _BRIEF}
        _say(f"{name}: {brief}")
        for fault in part["faults"]:
            _say(f"  {fault}")
    _say(f"{FOLDER}/summary.json; " + ("; ".join(missed) or "nothing lost, nothing stale accepted, every audit clean"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
