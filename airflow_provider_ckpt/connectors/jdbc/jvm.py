"""Start a Java process with the driver's jars on its class path, so that planning can use JDBC without Spark.

Planning sends a few small queries before it is known whether Spark is needed; a Java process without Spark starts in
half a second. The process listens on the loopback address for Py4J, requires a token, and ends with this Python
process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core.errors import ConfigError, SourceError

_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")
_SERVER = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
_SECONDS = 10.0


class Jvm:
    """A Java process that this Python process starts, and whose classes it uses through Py4J.

    :param jars: paths of the driver's jars
    :param options: additional options of the ``java`` command
    :ivar packages: the process's Java packages and classes, as attributes by name
    :raises ConfigError: if Java cannot be started
    :raises SourceError: if the Java process ended at once
    """

    def __init__(self, jars: Sequence[str], options: Sequence[str] = ()) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path  # type: ignore[import-untyped]

        for name in ("py4j", "py4j.java_gateway"):  # at DEBUG it would log every text sent, including passwords
            logging.getLogger(name).setLevel(max(logging.getLogger(name).getEffectiveLevel(), logging.INFO))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        path = os.pathsep.join([find_jar_path(), *jars])
        try:
            self._process = subprocess.Popen(  # noqa: S603  # Java, with the jars that the pipeline names
                [_java(), *_OPTIONS, *options, "-cp", path, *_SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
            )
        except OSError as error:
            self._stderr.close()
            raise ConfigError(
                f"Java cannot be started: {error.strerror}.",
                hint="A jdbc source is planned in a Java process on the worker: install Java 17 or newer, "
                "or set JAVA_HOME.",
            ) from error
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().decode().strip() for _ in range(2))
        if not token:
            raise SourceError(f"Java ended as soon as it was started: {self._first_line()}", hint="Try: java -version")
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token))
        self.packages: Any = self._gateway.jvm
        # Drivers may print to the standard output, which is not read.
        self.java.lang.System.setOut(self.java.io.PrintStream(self.java.io.OutputStream.nullOutputStream()))

    @property
    def java(self) -> Any:
        """The Java package ``java`` of the process: ``jvm.java.lang.System`` is the class ``java.lang.System``."""
        return self.packages.java

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """Create a Java array in the process, and return a reference to the array.

        :param kind: name of the elements' class
        :param values: the elements
        """
        java_array = self._gateway.new_array(getattr(self.packages, kind), len(values))
        for at, value in enumerate(values):
            java_array[at] = value
        return java_array

    def close(self) -> None:
        """End the Java process, by force if it does not end within 10 s."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        with suppress(Py4JError, OSError):  # it may have ended already
            self._gateway.shutdown()
        # Otherwise Py4J would report each object that Python frees to the ended process, and log each failure.
        self._gateway._gateway_client.is_connected = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def _first_line(self) -> str:
        """Return the first line of Java's standard error after a failed start, or its exit status if there is none."""
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        with self._stderr:
            lines = self._stderr.read().decode(errors="replace").splitlines()
        return next((line for line in lines if line.strip()), f"exit status {self._process.returncode}")


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home) / "bin" / "java") if java_home else "java"
