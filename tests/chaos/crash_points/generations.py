"""Source whose versions differ in each row and in their size, and a check that readers of a target see whole versions.

Every row of a version contains the version's number. If a reader sees rows of two versions, or not as many rows as a
version has, a refresh was published in part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from tests.services.tables import execute

VALUES = "SELECT i, {version}, repeat('x', 300) FROM generate_series(1, {rows}) AS i"
"""Query of the rows of a version."""

COLUMNS = "id bigint PRIMARY KEY, version bigint NOT NULL, filler text NOT NULL"

Seen = tuple[int, int | None, int | None]
"""Number of rows, least and greatest version; the versions are None if there are no rows."""

_HERTZ = 50
_SECONDS_A_VERSION = 0.15
_VERSIONS = 7


def rows_of(version: int) -> int:
    """Return the number of rows of a version of the source."""
    return 400 + 37 * (version % _VERSIONS)


def create_source(dsn: str, table: str) -> None:
    """Create a source table with the rows of version 1.

    :param dsn: the database
    :param table: the table's name as SQL
    """
    execute(
        dsn,
        "SET synchronous_commit = on",  # off by default at a server that is to lose commits
        f"CREATE TABLE {table} ({COLUMNS})",
        f"INSERT INTO {table} {VALUES.format(version=1, rows=rows_of(1))}",
    )


def change_source(dsn: str, table: str, version: int) -> None:
    """Replace the rows of a source table by those of a version, in one transaction.

    :param dsn: the database
    :param table: the table's name as SQL
    :param version: the version
    """
    if version % _VERSIONS == 0:
        execute(dsn, f"VACUUM {table}")  # or each refresh would have more pages than the last
    execute(
        dsn,
        "SET synchronous_commit = on",
        f"BEGIN; DELETE FROM {table} WHERE id > {rows_of(version)}; UPDATE {table} SET version = {version};"
        f"INSERT INTO {table} SELECT i, {version}, repeat('x', 300) FROM"
        f" generate_series((SELECT count(*) FROM {table}) + 1, {rows_of(version)}) AS i; COMMIT",
    )


class Oracle:
    """Changes a source, and reads its target, while refreshes run and are disturbed.

    :param read: returns what a reader of the target sees now
    :param change: gives the source the rows of a version
    :param outages: whether both may fail, since the servers are killed
    :ivar seen: what the reader saw, without repetitions
    :ivar reads: number of times that it read
    """

    def __init__(self, read: Callable[[], Seen], change: Callable[[int], None], *, outages: bool = False) -> None:
        self._read, self._change, self._outages = read, change, outages
        self.seen: list[Seen] = []
        self.reads = 0
        self._ended, self._source_ended = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        self._changing = threading.Thread(target=self._guarded, args=(self._change_source,))
        self._reading = threading.Thread(target=self._guarded, args=(self._read_target,))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Change and read in the background."""
        self._reading.start()
        self._changing.start()
        try:
            yield
        finally:
            self.stop_changes()
            self._ended.set()
            self._reading.join()
        assert self._failures == []

    def stop_changes(self) -> None:
        """Leave the source as it is from now on; the target is still read."""
        self._source_ended.set()
        self._changing.join()

    def broken(self) -> list[tuple[str, Seen]]:
        """Return what the reader saw that it must not see, each with the name of the invariant that forbids it."""
        newest, found = 0, []
        for seen in self.seen:
            count, least, greatest = seen
            if least is None or least != greatest or count != rows_of(least):
                found.append(("ReadersSeeOneGeneration", seen))
            elif least < newest:
                found.append(("PublishMonotonic", seen))
            else:
                newest = least
        return found

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # the thread's boundary
            self._failures.append(error)

    def _read_target(self) -> None:
        while not self._ended.wait(1 / _HERTZ):
            with self._tolerant():
                found = self._read()
                self.reads += 1
                if not self.seen or self.seen[-1] != found:
                    self.seen.append(found)

    def _change_source(self) -> None:
        version = 1
        while not self._source_ended.wait(_SECONDS_A_VERSION):
            version += 1
            with self._tolerant():
                self._change(version)

    def _tolerant(self) -> AbstractContextManager[None, bool]:
        """Return a context that ignores what drivers raise while a server is not there, if that may happen."""
        return suppress(*([Exception] if self._outages else []))
