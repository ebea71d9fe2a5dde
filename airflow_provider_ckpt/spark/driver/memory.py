"""Memory of a standing driver: how much it uses, and whether it has grown beyond what its work explains."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_PYTHON_BYTES = 1 << 30
"""Memory of the driver's own process that no run explains."""

_JVM_BYTES = 1 << 30
"""Memory of Java besides its heap that no run explains."""

_HEAP_SHARE = 0.75
"""Share of the heap that may still be in use after Java has collected its garbage."""


class Memory:
    """Memory of this process, of Spark's JVM, and of the Python workers.

    :param spark: any session
    :ivar has_grown: whether the driver should be replaced by a new one
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm  # PySpark has no public access to Java's own measurements
        self._java = os.getppid()
        self._heap = self._jvm.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
        self.has_grown = False

    def look(self) -> None:
        """Find out whether the memory has grown too much; for the end of a run."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        with suppress(Py4JError, OSError):  # Java may have ended; this process then ends, too
            python, java, live = _resident(os.getpid()), _resident(self._java), self._live_heap()
            grown = python > _PYTHON_BYTES or java > self._heap + _JVM_BYTES or live > self._heap * _HEAP_SHARE
            if grown and not self.has_grown:
                log.warning(
                    "Memory has grown to %d MiB in Python, %d MiB in Java, %d MiB of it live objects: "
                    "another driver will serve the next runs",
                    *(number >> 20 for number in (python, java, live)),
                )
            self.has_grown = self.has_grown or grown

    def total(self) -> int:
        """Return the bytes of memory of all processes of the driver; shared pages count in part."""
        session = os.getsid(0)
        found = 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError, ValueError):
                    if os.getsid(int(entry.name)) == session:
                        found += _proportional(entry)
        return found

    def _live_heap(self) -> int:
        """Return the bytes of the heap that were in use after the last collection of the old generation."""
        pools = self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()  # type: ignore[union-attr]
        live = 0
        for pool in pools:
            usage = pool.getCollectionUsage()
            if usage is not None and str(pool.getType().name()) == "HEAP" and "Old" in pool.getName():
                live += int(usage.getUsed())
        return live


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional(entry: Path) -> int:
    for line in (entry / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0
