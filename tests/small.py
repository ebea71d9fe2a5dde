"""Runs the proofs, storms and benchmarks in small: whether each still works, not what it measures.

``python -m tests.small [TARGET…]`` ends with 1 if one of them does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

COMMANDS: Mapping[str, Sequence[str]] = {
    "formal": ("tests.formal", "--small"),
    "ledger-storm": ("tests.chaos.ledger_storm", "--commands", "400", "--processes", "3"),
    "chaos": ("tests.chaos.chaos", "--points", "3", "--minutes", "3", "--pair", "files-delta", "--kills", "4"),
    "soak": ("tests.chaos.soak", "--runs", "20"),
    "bench-pg": ("tests.benchmarks.pg_to_pg", "--rounds", "1", "--rows", "20000"),
    "bench-kafka": ("tests.benchmarks.kafka_to_kafka", "--rounds", "1", "--messages", "20000"),
    "bench-files": ("tests.benchmarks.files", "--rounds", "1"),
    "bench-isolation": ("tests.benchmarks.isolation", "--rounds", "1", "--rows", "20000"),
    "bench-ledger": ("tests.benchmarks.ledger", "--receipts", "20000"),
    "bench-peers": ("tests.benchmarks.peers", "--rounds", "0", "--rows", "20000", "--tables", "3"),
    "bench-airflow": ("tests.benchmarks.airflow", "--rounds", "0", "--pipelines", "2"),
}
"""By make target, the module and its arguments."""

_MINUTES = 8


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
    """Run them one after the other, with a line for each."""
    failed = []
    for target in targets or COMMANDS:
        started = time.monotonic()
        wrong = run(target)
        failed += [target] if wrong else []
        print(f"{'FAILED' if wrong else 'ran'}: {target}, {time.monotonic() - started:.0f} s {wrong}", flush=True)
    print(f"{len(targets or COMMANDS) - len(failed)} of {len(targets or COMMANDS)} run in small", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
