"""Run the proofs, storms and benchmarks with small sizes, two at a time, to check that each still works.

``python -m tests.small [TARGET…]`` ends with 1 if one of them fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

COMMANDS: Mapping[str, Sequence[str]] = {
    "formal": ("tests.formal", "--small"),
    "bench-airflow": ("tests.benchmarks.airflow", "--rounds", "0", "--pipelines", "2"),
    "chaos": ("tests.chaos.chaos", "--points", "2", "--minutes", "3", "--pair", "files-delta", "--kills", "4"),
    "soak": ("tests.chaos.soak", "--runs", "20"),
    "ledger-storm": ("tests.chaos.ledger_storm", "--commands", "400", "--processes", "3"),
    "bench-pg": ("tests.benchmarks.pg_to_pg", "--rounds", "1", "--rows", "20000"),
    "bench-mysql": ("tests.benchmarks.mariadb", "--rounds", "1", "--rows", "20000"),
    "bench-kafka": ("tests.benchmarks.kafka_to_kafka", "--rounds", "1", "--messages", "20000"),
    "bench-files": ("tests.benchmarks.files", "--rounds", "1"),
    "bench-store": ("tests.benchmarks.store", "--rounds", "1", "--objects", "200"),
    "bench-isolation": ("tests.benchmarks.isolation", "--rounds", "1", "--rows", "20000"),
    "bench-ledger": ("tests.benchmarks.ledger", "--receipts", "20000"),
    "bench-peers": ("tests.benchmarks.peers", "--rounds", "0", "--rows", "20000", "--tables", "3"),
    "bench-page": (
        "tests.benchmarks.page",
        "--receipts",
        "20000",
        "--pipelines",
        "20",
        "--batches",
        "2000",
        "--number",
        "5",
    ),
    "bench-database": ("tests.benchmarks.database", "--tables", "12", "--rows", "100"),
    "bench-many": ("tests.benchmarks.many", "--pipelines", "3", "--files", "60", "--seconds", "5"),
}
"""By make target, the module and its arguments; the slowest begin first."""

_MINUTES = 20
_AT_ONCE = 2


def run(target: str) -> str:
    """Run one target in small; what went wrong, empty if nothing did."""
    with tempfile.TemporaryFile("w+") as said:
        try:
            code = subprocess.run(
                [sys.executable, "-m", *COMMANDS[target]], stdout=said, stderr=said, timeout=_MINUTES * 60, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        if code == 0:
            return ""
        said.seek(0)
        end = "".join(said.readlines()[-40:])
    return f"{'not done after' if code is None else 'ended with'} {_MINUTES if code is None else code}\n{end}"


def main(*targets: str) -> int:
    """Run them, with a line for each."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        failed = sum(pool.map(_told, targets or COMMANDS))
    print(f"{len(targets or COMMANDS) - failed} of {len(targets or COMMANDS)} run in small", flush=True)
    return int(failed > 0)


def _told(target: str) -> bool:
    """Run one target in small and print a line; whether it failed."""
    started = time.monotonic()
    wrong = run(target)
    print(f"{'FAILED' if wrong else 'ran'}: {target}, {time.monotonic() - started:.0f} s {wrong}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
