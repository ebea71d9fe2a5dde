"""Return the names by which OpenLineage and messages refer to a path or URL and to the dead letters beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_files import dead_letters_directory
from airflow_provider_ckpt.connectors.storage.open_location import open_location

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the namespace and name of a path's dataset by OpenLineage's rules.

    :param section: section ``source`` or ``sink``, whose ``path`` is a path or URL
    :param connection: the Airflow connection, whose path is prefixed to a relative ``path``
    """
    uri = open_location(section.place, section.place_key, connection).uri
    bucket, _, key = uri.partition("://")[2].partition("/")
    return (f"{uri.partition('://')[0]}://{bucket}", key) if bucket else ("file", uri)


def dead_letter_place(pipeline: Pipeline, connections: Callable[[str], Connection]) -> str:
    """Return the place of the dead letters beside a sink's target for messages; see :class:`SinkType`.

    An example is ``the JSON lines under /data/out.dead_letters/orders``.

    :param pipeline: the pipeline; ``sink.path`` is a path or URL
    :param connections: function that returns an Airflow connection by its id
    """
    connection = connections(pipeline.sink.connection) if pipeline.sink.connection else None
    target = open_location(pipeline.sink.place, "sink.path", connection)
    return f"the JSON lines under {dead_letters_directory(target, pipeline.name)}"
