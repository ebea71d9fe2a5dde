"""The delta sink passes the conformance suite on emulators of Azure's and Google's object stores."""

from __future__ import annotations

import io
from typing import cast

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from tests.integration.connectors.files.object_sink_support import ObjectTarget
from tests.services.object_stores import ObjectStores


class StoredTableHarness(SinkHarness):
    """A Delta table below a prefix of its own, which its readers open by the library."""

    def __init__(self, target: ObjectTarget) -> None:
        self._target = target
        self._location = cast("ObjectLocation", open_location(target.url, "sink.path", target.connection))
        self._pipeline = Pipeline.model_validate(
            {
                "name": "flights",
                "source": {"type": "files", "path": "/nowhere"},
                "transform": {"decode": "json", "schema": "id bigint"},
                "sink": {"type": "delta", "path": target.url, "connection": "lake"},
            }
        )

    def sink(self, context: SinkContext) -> Sink:
        return registry.open_sink(self._pipeline, self._target.connection, context)

    def writer(self, context: SinkContext) -> Writer:
        return registry.open_writer(self._pipeline, self._target.connection, context)

    def committer(self, context: SinkContext) -> Committer | None:
        return registry.open_committer(self._pipeline, self._target.connection, context)

    def target(self) -> list[int]:
        try:
            table = DeltaTable(self._target.url, storage_options=dict(self._location.storage_options))
        except TableNotFoundError:
            return []
        known = {uri.rpartition("/")[2] for uri in table.file_uris()}
        stored = self._target.server.objects(self._target.key)
        files = [data for key, data in stored.items() if key.rpartition("/")[2] in known]
        return sorted(number for data in files for number in pq.read_table(io.BytesIO(data))["id"].to_pylist())

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        return self._target.stored_dead_letters(self.sink(context).receipts({}))


@pytest.mark.parametrize("store", ["azurite", "fake-gcs"])
class TestDeltaInStore(SinkConformance):
    @pytest.fixture
    def harness(self, store: str, object_stores: ObjectStores) -> SinkHarness:
        return StoredTableHarness(ObjectTarget(object_stores.get(store)))
