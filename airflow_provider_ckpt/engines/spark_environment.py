"""Environment of ``spark-submit``: the worker's Python, and the Spark that is installed beside it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def environment(binary: str = "spark-submit") -> dict[str, str]:
    """Return environment variables for ``spark-submit``.

    The driver runs on the worker's Python. ``spark-submit`` and the jars of Spark are those that are installed beside
    this Python, if there are any.

    :param binary: name of the program
    """
    binaries = Path(sys.executable).parent
    found = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",  # keeps Spark's ``python -m`` from importing from the working directory
        "PATH": str(binaries) + os.pathsep + os.environ.get("PATH", ""),
    }
    pyspark = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or pyspark is None or not pyspark.origin:
        return found
    home = Path(pyspark.origin).parent
    if (binaries / binary).exists() and (home / "jars").is_dir():
        found["SPARK_HOME"] = str(home)  # saves a Python process that would find it
    return found
