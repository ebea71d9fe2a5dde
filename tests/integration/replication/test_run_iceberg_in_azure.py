"""JSON lines become rows of an Iceberg table in Azure Blob Storage, named by the URLs that Azure's catalogs give it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.durable import DurableFileIO
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.interruptions import Killed, after, kill
from tests.services.azurite import ACCOUNT, Azurite
from tests.services.iceberg import IcebergService
from tests.services.ledgers import make_ledger
from tests.services.object_store import BUCKET
from tests.services.object_stores import ObjectStores
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "air.flights"
FILE_ROWS = 100


@dataclass(frozen=True)
class AzureLake(IcebergService):
    """A catalog in a database, with its warehouse in Azure Blob Storage.

    :param cloud: properties with which the Iceberg library finds the warehouse and reaches the store
    """

    cloud: Mapping[str, str] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        return {
            **super().properties,
            **self.cloud,
            "py-io-impl": f"{DurableFileIO.__module__}.{DurableFileIO.__name__}",
        }

    @property
    def connection(self) -> Connection:
        extra = {name: value for name, value in self.properties.items() if name != "py-io-impl"}
        return Connection("lake", "generic", extra=extra)

    @property
    def ids(self) -> list[int]:
        """The delivered ids, as the Iceberg library reads them."""
        table = self.table(TABLE)
        assert table is not None
        return sorted(table.scan().to_arrow()["id"].to_pylist())


def _properties(store: Azurite) -> dict[str, str]:
    services = ("blob", "dfs")
    return {
        "warehouse": f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net/warehouse",
        "adls.account-name": ACCOUNT,
        "adls.account-key": store.secret,
        **{f"adls.{service}-storage-authority": f"127.0.0.1:{store.port}" for service in services},
        **{f"adls.{service}-storage-scheme": "http" for service in services},
    }


def test_a_driver_that_dies_around_its_commit_neither_loses_nor_doubles(
    spark: SparkSession,
    postgres_server: PostgresServer,
    object_stores: ObjectStores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    dsn = postgres_server.new_database()
    store = object_stores.get("azurite")
    assert isinstance(store, Azurite)
    lake = AzureLake(tmp_path / "lake", dsn, _properties(store))
    document = {
        "name": "flights",
        "source": {"type": "files", "path": str(inbox)},
        "transform": {"decode": "json", "schema": "id bigint, tail string"},
        "sink": {"type": "iceberg", "connection": "lake", "table": TABLE},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 30},
    }
    steps = ((IcebergVersion, "commit", False), (IcebergVersion, "commit", True), (TableCommitter, "commit", True))
    with make_ledger(postgres_server) as ledger:
        replication = Replication(spark, ledger, dsn, document, {"lake": lake.connection})
        for number, (owner, name, done) in enumerate(steps):
            ids = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
            (inbox / f"{number}.jsonl").write_text("".join(f"{json.dumps({'id': i, 'tail': f'N{i}'})}\n" for i in ids))
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, after(getattr(owner, name), kill) if done else kill)
                with pytest.raises(Killed):
                    replication.run()
        last = replication.run()

        assert last.route == ["done"]
        assert lake.ids == list(range(len(steps) * FILE_ROWS))
        assert audit_sink(replication.setup(), lambda _: None)["differences"] == []
