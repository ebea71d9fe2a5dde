"""``python -m tests.chaos.schema_storm --rounds 200 --seed 1``: run one long storm, and write its summary as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.schema_storm.storm import storm
from tests.chaos.schema_storm.targets import TARGETS
from tests.services.mariadb import MariaDbServer
from tests.services.postgres import PostgresServer


def main() -> int:
    """Run a storm on servers of its own; exit 1 if the model found a fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sink", choices=TARGETS, default="postgres")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(PostgresServer(fsync=False, in_memory=True))
        mariadb = stack.enter_context(MariaDbServer(in_memory=True)) if args.sink == "mysql" else None
        summary = storm(server, Path(folder), rounds=args.rounds, seed=args.seed, sink=args.sink, mariadb=mariadb)
    print(json.dumps(summary, indent=2))
    return 1 if summary["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
