"""Memory of a standing driver: the bytes that it uses, and the limits above which a new driver replaces it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_PYTHON_BYTES = 1 << 30
"""Resident memory of one of the driver's Python processes, in bytes, above which the driver is replaced.

It applies to the driver itself and to each Python worker, in which users' functions run.
"""

_JVM_BYTES = 1 << 30
"""Resident memory of the Java process in bytes, in addition to the maximum heap, above which the driver is replaced."""

_OLD_GENERATIONS = ("Old", "Tenured")
"""Parts of the names of the JVM's memory pools for long-lived objects; the names depend on the garbage collector."""

_HEAP_SHARE = 0.75
"""Share of the maximum heap (0 to 1) still in use after a garbage collection, above which the driver is replaced."""


class Memory:
    """Measurement of the memory of a standing driver: its Python process, Spark's JVM and the Python workers.

    :param spark: any session of the driver
    :ivar has_grown: whether a measurement was above a limit, so that a new driver should replace this one
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm  # PySpark has no public access to Java's own measurements
        self._java = os.getppid()
        self._heap = self._jvm.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
        self.has_grown = False

    def measure(self) -> None:
        """Measure the memory of the driver's processes; above a limit, set ``has_grown`` and log a warning.

        Called after each run.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        with suppress(Py4JError, OSError):  # Java may have ended; this process then ends, too
            java, live = _resident(self._java), self._live_heap()
            python = max(_resident(pid) for pid in _processes() if pid != self._java)
            grown = python > _PYTHON_BYTES or java > self._heap + _JVM_BYTES or live > self._heap * _HEAP_SHARE
            if grown and not self.has_grown:
                log.warning(
                    "Memory has grown to %d MiB in a Python process, %d MiB in Java, %d MiB of it live objects: "
                    "another driver will serve the next runs",
                    *(number >> 20 for number in (python, java, live)),
                )
            self.has_grown = self.has_grown or grown

    def total(self) -> int:
        """Return the memory of all processes of the driver in bytes; shared pages count in proportion."""
        return sum(map(_proportional, _processes()))

    def _live_heap(self) -> int:
        """Return the bytes of Java's old generation that were still in use after its last garbage collection."""
        pools = self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()  # type: ignore[union-attr]
        live = 0
        for pool in pools:
            usage = pool.getCollectionUsage()
            if (
                usage is not None
                and str(pool.getType().name()) == "HEAP"
                and any(word in pool.getName() for word in _OLD_GENERATIONS)
            ):
                live += int(usage.getUsed())
        return live


def _processes() -> Iterator[int]:
    """Yield the pids of the driver's processes, which all belong to the POSIX session of this process."""
    session = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if os.getsid(int(entry.name)) == session:
                    yield int(entry.name)


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if the process has ended."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional(pid: int) -> int:
    """Return a process's memory in bytes, with a proportional part of each shared page.

    The result is 0 if Linux does not report it, or if the process has ended.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
