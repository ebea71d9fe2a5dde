"""The kafka sink passes the conformance suite with a real broker."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness
from tests.services.kafka import KafkaBroker


class TestConformance(SinkConformance):
    @pytest.fixture
    def harness(self, kafka_broker: KafkaBroker) -> SinkHarness:
        harness = TopicHarness(kafka_broker, config={"cleanup.policy": "compact"})
        harness.sink_settings["key"] = ["id"]
        harness.refused = [None]
        return harness
