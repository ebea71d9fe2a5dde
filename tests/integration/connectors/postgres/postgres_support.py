"""Support for the tests of the postgres connectors: connections to a test database, pipelines, and SQL."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection


def connection(dsn: str, **changes: Any) -> Connection:
    """A connection as Airflow would give it."""
    url = urlsplit(dsn)
    values: dict[str, Any] = {
        "id": "warehouse",
        "type": "postgres",
        "host": url.hostname,
        "port": url.port,
        "login": url.username,
        "password": url.password,
        "schema": url.path[1:],
    }
    return Connection(**values | changes)


def pipeline(
    name: str = "orders",
    *,
    source: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
    **rest: Any,
) -> Pipeline:
    """A pipeline from ``public.source`` by ``id`` to ``public.target``."""
    return Pipeline.model_validate(
        {
            "name": name,
            "source": {
                "type": "postgres",
                "connection": "warehouse",
                "table": "public.source",
                "cursor": "id",
                "close_wait": "2s",
            }
            | (source or {}),
            "sink": {"type": "postgres", "connection": "warehouse", "table": "public.target"} | (sink or {}),
        }
        | rest
    )
