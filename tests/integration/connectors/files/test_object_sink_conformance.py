"""The files sink in an object store passes the conformance suite, on each kind of store."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from tests.integration.connectors.files.object_sink_support import ObjectTarget
from tests.services.object_stores import ObjectStores


class ObjectFilesHarness(SinkHarness):
    """A prefix of its own in a store."""

    def __init__(self, target: ObjectTarget) -> None:
        self._target = target
        self._pipeline = target.pipeline()

    def sink(self, context: SinkContext) -> Sink:
        return registry.open_sink(self._pipeline, self._target.connection, context)

    def writer(self, context: SinkContext) -> Writer:
        return registry.open_writer(self._pipeline, self._target.connection, context)

    def committer(self, context: SinkContext) -> Committer | None:
        return registry.open_committer(self._pipeline, self._target.connection, context)

    def target(self) -> list[int]:
        return self._target.ids()

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        return self._target.stored_dead_letters(self.sink(context).receipts({}))


@pytest.mark.parametrize("store", ObjectStores.names())
class TestObjectFilesSink(SinkConformance):
    @pytest.fixture
    def harness(self, store: str, object_stores: ObjectStores) -> SinkHarness:
        return ObjectFilesHarness(ObjectTarget(object_stores.get(store)))
