"""Describe in messages the place of dead letters that are stored in a directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.storage.filesystem import escape
from airflow_provider_ckpt.connectors.storage.open_location import open_location

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def dead_letter_place(pipeline: Pipeline, connections: Callable[[str], Connection]) -> str:
    """Return the place of a pipeline's dead letters for messages; see :class:`DeadLetterStoreType`.

    An example is ``the JSON lines under /data/letters/orders``.

    :param pipeline: ``dead_letter_queue.path`` names the directory
    :param connections: function that returns an Airflow connection by its id
    """
    named = pipeline.dead_letter_connection
    connection = connections(named) if named else None
    directory = open_location(pipeline.dead_letter_queue.path or "", "dead_letter_queue.path", connection)
    return f"the JSON lines under {directory / escape(pipeline.name)}"
