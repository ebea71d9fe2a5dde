"""Name a table for other systems and users: its OpenLineage dataset, and the place of dead letters for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import split_table

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline

_DEAD_LETTER_TABLE = "ckpt_sink_dead_letter"


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the namespace and name of a table's dataset by OpenLineage's rules.

    :param section: section ``source`` or ``sink`` of the pipeline, which names the table
    :param connection: the Airflow connection of the database
    """
    assert connection is not None
    schema, name = split_table(section.place)
    host = f"postgres://{connection.host or 'localhost'}:{connection.port or 5432}"
    return host, f"{connection.schema or connection.login}.{schema or 'public'}.{name}"


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages, such as ``table shop.bad_orders of connection pg``.

    See :class:`SinkType`.

    :param pipeline: the pipeline; the table is in the target's schema, unless ``dead_letter_queue.table`` names one
    """
    queue = pipeline.dead_letter_queue
    if queue.in_other_store:
        return f"table {queue.table} of connection {pipeline.dead_letter_connection}"
    schema, dot, _table = pipeline.sink.place.rpartition(".")
    return f"table {schema}{dot}{_DEAD_LETTER_TABLE} of connection {pipeline.sink.connection}"
