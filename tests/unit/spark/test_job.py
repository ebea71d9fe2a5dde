"""Tests of the description of a run for the driver and the executors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_ckpt.config import installed_connectors
from airflow_provider_ckpt.config.installed_connectors import UnknownTypeError, find_connector
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.spark.job import Job

EXAMPLE = Path(__file__).parents[2] / "example_connector"
DOCUMENT = {
    "name": "shop",
    "source": {"type": "sqlite", "path": "/data/shop.db", "table": "orders"},
    "sink": {"type": "sqlite", "path": "/data/lake.db", "table": "orders"},
}


def test_an_executor_needs_a_connectors_package_and_no_metadata_of_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(installed_connectors, "_known_paths", {})
    with pytest.raises(UnknownTypeError):
        find_connector("sqlite")
    sent = Job(
        DOCUMENT,
        SinkContext("l", "shop"),
        RecordShape(False, ()),
        {},
        None,
        {"sqlite": "ckpt_sqlite.connector:CONNECTOR"},
    )

    job = Job.from_json(json.loads(json.dumps(sent.to_json())))

    assert (job.pipeline.source.place, type(job.pipeline.sink).__name__) == ("orders", "SqliteSinkSection")
