"""Connections of the iceberg sink that name no catalog, or a catalog that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from tests.integration.connectors.batches import LEDGER
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness


def sink(folder: Path, **extra: Any) -> IcebergSink:
    """A sink whose connection has this extra."""
    connection = Connection("lake", "generic", login="me", password="s3cret/", extra=extra)
    return IcebergSink(IcebergHarness(folder).pipeline(), connection, SinkContext(LEDGER, "flights", 1))


def test_a_remote_warehouse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hdfs:// locations are not supported"):
        sink(tmp_path, type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="hdfs://bucket/lake").check()


def test_a_connection_that_names_no_catalog_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no Iceberg catalog"):
        sink(tmp_path, warehouse="/lake")


def test_a_catalog_that_does_not_answer_fails_the_sink_as_a_whole_without_telling_secrets(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot open the Iceberg catalog") as raised:
        sink(
            tmp_path, uri="http://127.0.0.1:9/me:s3cret/", token="t0ken", **{"oauth2-server-uri": "http://127.0.0.1:9/"}
        ).check()

    assert raised.value.is_outage
    assert "s3cret" not in str(raised.value)
    assert "t0ken" not in str(raised.value)


def test_a_uri_that_cannot_be_read_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be opened.*Correct the extra of the catalog's connection"):
        sink(tmp_path, type="sql", uri="no-such-database://x/y").check()
