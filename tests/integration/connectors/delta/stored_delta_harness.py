"""Harness with a Delta table in an S3 store, which keeps objects as files, so that tests can inspect them."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar

from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.interruptions import Step
from tests.services.object_store import BUCKET
from tests.services.s3 import VersityGateway


@cache
def s3_server() -> VersityGateway:
    """Return a server for this process and its tests, started at the first call."""
    server = VersityGateway()
    server.__enter__()
    atexit.register(server.__exit__)
    return server


class StoredDeltaHarness(DeltaHarness):
    """A Delta table in an S3 store; other writers reach it as a directory.

    :param folder: determines the prefix
    """

    steps: ClassVar[Mapping[str, Step]] = {**DeltaHarness.steps, "open to fence": Step(ObjectLocation, "write")}

    def __init__(self, folder: Path) -> None:
        server = s3_server()
        prefix = f"{folder.parent.name}-{folder.name}/lake/flights"
        self.place = server.home / "data" / BUCKET / prefix
        self.url = server.url(prefix)
        self.location = f"delta+{self.url}"
        self.connection = server.connection()

    def put_aside(self) -> Callable[[], list[int]]:
        read = super().put_aside()
        self._forget(self.place / "_delta_log")
        return read

    def drop(self) -> None:
        super().drop()
        self._forget(self.place)

    def _forget(self, directory: Path) -> None:
        """Remove what the server knows of the objects of a directory that was moved away or removed."""
        home = s3_server().home
        shutil.rmtree(home / "meta" / directory.relative_to(home / "data"), ignore_errors=True)

    @property
    def sink(self) -> Mapping[str, str]:
        return {"type": "delta", "path": self.url, "connection": "lake"}
