"""Make ``spark-submit`` use the Python of this process, and the Spark installed with it, by environment variables."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def environment(binary: str = "spark-submit") -> dict[str, str]:
    """Return environment variables for ``spark-submit``, to be added to those of this process.

    The driver runs on the Python of this process. If ``spark-submit`` and Spark's jars are installed with this Python,
    they are used, unless ``SPARK_HOME`` is set already.

    :param binary: name of the program, by default ``spark-submit``
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
