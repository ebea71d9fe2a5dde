"""Process that commits to a Delta or Iceberg table at a given rate, as another writer of the table.

``python -m tests.services.contender delta PATH RATE`` or ``… iceberg FOLDER TABLE RATE``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import CommitFailedException

from tests.services.iceberg import IcebergService


@contextmanager
def contender(*arguments: object) -> Iterator[None]:
    """The process, at work from the first commit that it made to the end of the block."""
    command = [sys.executable, "-m", "tests.services.contender", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"committed\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def to_delta(path: str) -> Callable[[], None]:
    """One empty commit."""
    table = DeltaTable(path)

    def commit() -> None:
        table.update_incremental()
        try:
            table.create_write_transaction([], "append", table.schema())
        except DeltaError:
            return

    return commit


def to_iceberg(folder: str, name: str) -> Callable[[], None]:
    """One empty snapshot."""
    lake = IcebergService(Path(folder))

    def commit() -> None:
        table = lake.table(name)
        assert table is not None
        try:
            with table.transaction() as transaction, transaction.update_snapshot().fast_append():
                pass
        except CommitFailedException:
            return

    return commit


def main(kind: str, *arguments: str) -> None:
    *where, rate = arguments
    commit = to_delta(*where) if kind == "delta" else to_iceberg(*where)
    due = time.monotonic()
    first = True
    while True:
        commit()
        if first:
            print("committed", flush=True)
            first = False
        due = max(due + 1 / float(rate), time.monotonic() - 1)
        time.sleep(max(due - time.monotonic(), 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
