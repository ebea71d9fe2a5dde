"""Determine which version of Spark is installed, whether it is supported, and whether all files are of one version.

The packages ``pyspark`` and ``pyspark-client`` install their Python files into the same folder, and only ``pyspark``
brings Spark's jars. If their versions differ, the folder holds the files of whichever was installed last, or some of
each. The metadata of the packages does not show this, so the files themselves are examined.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import logging
import re
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

OLDEST, NEXT_MAJOR = (4, 0), (5, 0)
"""The oldest version of Spark that this package supports, and the first that it no longer supports."""

_FOLDER = "pyspark"
_CLIENT = "pyspark-client"
_VERSION = re.compile(r"""^__version__[^=]*=\s*["']([^"']+)["']""", re.MULTILINE)
_STATUS = re.compile(r"status = StatusCode\.([A-Z_]+)")
_JAR = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def installed_pyspark() -> str:
    """Return the version of the installed PySpark, whose Python files all belong to one package.

    :raises ConfigError: if PySpark is not installed completely, or its folder holds files of two versions
    """
    spec = find_spec(_FOLDER)
    if spec is None or not spec.origin:
        raise ConfigError("PySpark is not installed, or its files are incomplete.", hint=_reinstall())
    folder = Path(spec.origin).parent
    try:
        found = _VERSION.search((folder / "version.py").read_text())
    except OSError:
        found = None
    if found is None:
        raise ConfigError(f"the files of PySpark in {folder} are incomplete.", hint=_reinstall())
    _check_files(folder, found[1])
    return found[1]


def check_spark_home(home: str | None) -> None:
    """Check that the Spark in a home directory, which ``spark-submit`` starts, has a supported version.

    If that Spark is part of the installed PySpark, its version must also be that of PySpark's Python files.

    :param home: Spark's home directory; None if only ``spark-submit`` itself knows it. Without it, or without jars of
        Spark in it, nothing is checked
    :raises ConfigError: if Spark's version is not supported, or not that of PySpark's Python files
    """
    spark = _spark_in(Path(home)) if home else None
    if home is None or spark is None:
        return
    if not OLDEST <= _numbers(spark) < NEXT_MAJOR:
        raise ConfigError(f"the Spark in {home} is {spark}; this package needs {_supported()}.", hint=_reinstall())
    spec = find_spec(_FOLDER)
    own = spec is None or not spec.origin or Path(spec.origin).parent.resolve() == Path(home).resolve()
    if own and (pyspark := installed_pyspark()) != spark:
        raise ConfigError(
            f"the Python files in {home} are those of PySpark {pyspark}, and its jars are those of Spark {spark}: "
            f"{_CLIENT} was installed over pyspark.",
            hint=_reinstall(spark),
        )


def check_server(server: str, connection: str) -> None:
    """Check that a Spark Connect server has the installed PySpark's version; a different last number is only logged.

    :param server: version of the server
    :param connection: id of the server's Airflow connection, for messages
    :raises ConfigError: if the first two numbers of the versions differ
    """
    pyspark = installed_pyspark()
    if _numbers(server) != _numbers(pyspark):
        raise ConfigError(
            f"the Spark Connect server of connection {connection!r} is Spark {server}, and PySpark {pyspark} is "
            "installed here; they must have the same first two numbers.",
            hint=_reinstall(server),
        )
    if server != pyspark:
        log.warning(
            "The Spark Connect server of connection %r is Spark %s, and PySpark here is %s, which is not tested",
            connection,
            server,
            pyspark,
        )


def utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to an Arrow schema, whose timestamps have the time zone UTC.

    PySpark's function for this has no parameter for the time zone in Spark 4.0, where it always uses UTC.

    :param schema: the Spark schema
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def grpc_status(error: SparkConnectGrpcException) -> str:
    """Return the name of the gRPC status with which a call of a Spark Connect server ended, such as ``UNAVAILABLE``.

    :param error: the error of the call; in Spark 4.0 only its text contains the status
    :return: ``UNKNOWN`` if that text names no status
    """
    if hasattr(error, "getGrpcStatusCode"):
        return str(error.getGrpcStatusCode().name)
    found = _STATUS.search(str(error))
    return found[1] if found else "UNKNOWN"


def _check_files(folder: Path, version: str) -> None:
    """Check that the Python files of PySpark are all of the same package, ``pyspark`` or ``pyspark-client``.

    Files are compared only if the packages are of different versions: those of the same version are equal.

    :param folder: the import folder of PySpark
    :param version: version in the folder's ``version.py``
    :raises ConfigError: if some files belong to the other package
    """
    packages = [found for name in (_FOLDER, _CLIENT) if (found := _distribution(name))]
    versions = [found.version for found in packages]
    if len(set(versions)) < 2 or version not in versions:  # a system package, or a copy, has no RECORD to compare
        return
    digests, others = (_digests(packages[i]) for i in (versions.index(version), 1 - versions.index(version)))
    for name in digests.keys() & others.keys():
        if digests[name] != others[name] and _digest(folder.parent / name) != digests[name]:
            raise ConfigError(
                f"the files in {folder} are partly of pyspark {versions[0]} and partly of {_CLIENT} {versions[1]}.",
                hint=_reinstall(versions[0]),
            )


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _digests(package: Distribution) -> Mapping[str, str]:
    """Return the SHA-256 digest of each file of a package, by path, as the package's ``RECORD`` has it.

    A compiled file has an empty digest there.

    :param package: the package
    """
    return {row[0]: row[1] for row in csv.reader((package.read_text("RECORD") or "").splitlines())}


def _digest(file: Path) -> str:
    """Return a file's digest in the form of a package's ``RECORD``; an empty text if the file does not exist."""
    try:
        digest = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return ""
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _spark_in(home: Path) -> str | None:
    """Return the version of Spark's jars in a home directory; None if there are no jars.

    :param home: Spark's home directory
    """
    found = (_JAR.fullmatch(file.name) for file in (home / "jars").glob("spark-core_*.jar"))
    return next((match[1] for match in found if match), None)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as ``(4, 0)`` for ``4.0.1``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _supported() -> str:
    return f"{'.'.join(map(str, OLDEST))} or newer, below {NEXT_MAJOR[0]}"


def _reinstall(version: str | None = None) -> str:
    wanted = f"pyspark=={version}" if version else f"'pyspark>={OLDEST[0]}.{OLDEST[1]},<{NEXT_MAJOR[0]}'"
    return f"Run: pip install --force-reinstall --no-deps {wanted}"
