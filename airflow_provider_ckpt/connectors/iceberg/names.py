"""Return the names by which OpenLineage and messages refer to an Iceberg table and to its dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_ckpt.connectors.connection import Connection

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the OpenLineage dataset of an Iceberg table: the catalog's URI as its namespace, and the table's name.

    The catalog is the namespace since only it knows the table's location. A catalog without a URI is named by its type.

    :param section: section ``sink``
    :param connection: the Airflow connection of the catalog
    :return: namespace and name
    """
    assert connection is not None
    return _without_credentials(str(connection.extra.get("uri") or connection.extra.get("type"))), section.place


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages; see :class:`SinkType`.

    An example is ``the JSON lines beside the location of table db.t, catalog lake``.

    :param pipeline: the pipeline
    """
    sink = pipeline.sink
    return f"the JSON lines beside the location of table {sink.place}, catalog {sink.connection}"


def _without_credentials(uri: str) -> str:
    """Return the URI of a catalog without login and options, since both may contain secrets.

    :param uri: the URI
    """
    url = urlsplit(uri)
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
