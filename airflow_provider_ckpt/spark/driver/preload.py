"""Shorten the start of a cold Spark: import modules before they are needed, and start a first Python worker.

Nothing depends on these preparations: an error in them is ignored here, since it occurs again where the module or the
worker is needed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def prefer_installed_pyspark() -> None:
    """Remove the zip files of the installed PySpark, and the jar file of Spark's core, from ``sys.path``.

    Without the zip files, Python imports PySpark's unpacked modules, which are compiled already. Spark adds the jar
    file to ``sys.path`` although it contains no Python code; ``importlib.invalidate_caches``, which PySpark calls for
    each task, would read the jar's long list of files each time. The zip files stay if PySpark is not installed.
    """
    dropped = {entry for entry in sys.path if Path(entry).name.startswith("spark-core_") and entry.endswith(".jar")}
    zips = [entry for entry in sys.path if entry.endswith(".zip")]
    rest = [entry for entry in sys.path if entry not in zips]
    pyspark, py4j = (PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j"))
    if pyspark is not None and pyspark.origin and py4j is not None:
        lib = Path(pyspark.origin).parent / "python" / "lib"
        dropped.update(entry for entry in zips if Path(entry).parent == lib)
    sys.path[:] = [entry for entry in sys.path if entry not in dropped]
    for entry in dropped:
        sys.path_importer_cache.pop(entry, None)


def preload(names: Iterable[str]) -> None:
    """Import modules by name; skip those that cannot be imported."""
    for name in names:
        with suppress(Exception):
            import_module(name)


def preload_in_thread(names: Iterable[str]) -> None:
    """Import modules by name in a thread, while the caller waits for the JVM."""
    threading.Thread(target=preload, args=(names,), name="ckpt-preload", daemon=True).start()


def start_worker_in_thread(spark: SparkSession) -> None:
    """Start Spark's Python daemon and a first worker in a thread, while the caller prepares a wave."""
    threading.Thread(target=_start_worker, args=(spark,), name="ckpt-warm-up", daemon=True).start()


def _start_worker(spark: SparkSession) -> None:
    """Run a Spark job of one row in Python, which makes Spark start the daemon and a worker; ignore errors."""
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_unchanged, "id bigint").collect()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
