"""StatsD server for tests: a UDP socket on loopback that stores the metrics that it receives."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_LINE = re.compile(r"(?P<name>[^,:|]+)(?P<tags>(?:,[^,:|]+)*):(?P<value>[^|]+)\|(?P<kind>c|g|ms)")


@dataclass(frozen=True)
class Sample:
    """One value, as it came over the wire.

    :param kind: ``c``, ``g`` or ``ms``
    """

    name: str
    tags: Mapping[str, str]
    value: float
    kind: str


class StatsdServer:
    """Collects samples while the block runs."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port: int = self._socket.getsockname()[1]
        self.lines: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables that make an Airflow send its metrics here, with tags."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self.port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def samples(self, prefix: str = "airflow.ckpt.", **tags: str) -> list[Sample]:
        """Return the values so far, by the rest of the name after a prefix and by tags."""
        found = []
        for line in [line for line in list(self.lines) if line.startswith(prefix)]:
            match = _LINE.fullmatch(line)
            assert match, line
            named = dict(part.split("=", 1) for part in match["tags"].split(",")[1:])
            if tags.items() <= named.items():
                found.append(Sample(match["name"].removeprefix(prefix), named, float(match["value"]), match["kind"]))
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _collect(self) -> None:
        while not self._ended.is_set():
            try:
                self.lines += self._socket.recv(65536).decode().splitlines()
            except TimeoutError:
                continue
