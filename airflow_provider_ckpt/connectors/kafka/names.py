"""Name a topic for other systems and users: its OpenLineage dataset, and the place of dead letters for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import bootstrap_servers

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the namespace and name of a topic's dataset by OpenLineage's rules.

    :param section: section ``source`` or ``sink`` of the pipeline, which names the topic
    :param connection: the Airflow connection of the cluster; must not be None
    """
    assert connection is not None
    return f"kafka://{bootstrap_servers(connection).partition(',')[0].strip()}", section.place


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages, such as ``topic bad_orders of connection kafka``.

    See :class:`SinkType`.

    :param pipeline: ``dead_letter_queue`` names the topic, and may name its brokers
    """
    queue = pipeline.dead_letter_queue
    if queue.in_sink:
        return f"topic {queue.topic} of connection {pipeline.sink.connection}"
    return f"topic {queue.topic} of {queue.brokers or f'connection {pipeline.dead_letter_connection}'}"
