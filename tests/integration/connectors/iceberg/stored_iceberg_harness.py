"""Harness with an Iceberg table in an S3 store, which keeps objects as files, so that tests can inspect them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration.connectors.delta.stored_delta_harness import s3_server
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.services.iceberg import IcebergService
from tests.services.object_store import BUCKET


@dataclass(frozen=True)
class StoredIcebergService(IcebergService):
    """A catalog in an SQLite file, whose warehouse is in an S3 store.

    :param prefix: key below which the warehouse lies
    """

    prefix: str = ""

    @property
    def properties(self) -> dict[str, str]:
        connection = s3_server().connection()
        return {
            **super().properties,
            "warehouse": s3_server().url(f"{self.prefix}/warehouse"),
            "s3.endpoint": connection.extra["endpoint_url"],
            "s3.access-key-id": str(connection.login),
            "s3.secret-access-key": str(connection.password),
            "s3.region": "us-east-1",
        }

    def files(self, name: str) -> list[Path]:
        data = s3_server().home / "data"
        table = self.table(name)
        tasks = table.scan().plan_files() if table is not None else []
        return [data / task.file.file_path.removeprefix("s3://") for task in tasks]


class StoredIcebergHarness(IcebergHarness):
    """An Iceberg table in an S3 store.

    :param folder: holds the catalog, and determines the prefix
    """

    def __init__(self, folder: Path) -> None:
        self._prefix = f"{folder.parent.name}-{folder.name}"
        super().__init__(folder, StoredIcebergService(folder, prefix=self._prefix))
        self.place = s3_server().home / "data" / BUCKET / self._prefix / "warehouse" / "air" / "flights"
