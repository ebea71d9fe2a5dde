"""Names of Iceberg tables: the dataset of a sink, and the place of its dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_ckpt.connectors.connection import Connection

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the catalog as namespace, since only the catalog knows the table's location, and the table's name.

    :param section: section ``sink``
    :param connection: the Airflow connection of the catalog
    """
    assert connection is not None
    return _without_credentials(str(connection.extra.get("uri") or connection.extra.get("type"))), section.place


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return a phrase for the place of a pipeline's dead letters; see :class:`SinkType`.

    :param pipeline: the pipeline
    """
    sink = pipeline.sink
    return f"the JSON lines beside the location of table {sink.place}, catalog {sink.connection}"


def _without_credentials(uri: str) -> str:
    """Return the URI of a catalog without login and options, since both may contain secrets."""
    url = urlsplit(uri)
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
