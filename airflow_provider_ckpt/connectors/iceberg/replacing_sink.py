"""Prepare and inspect an Iceberg table whose rows each run replaces (``mode: replace``); see ``sink.py``."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.two_phase.replacement import ReplacesTable


class IcebergReplacingSink(IcebergSink, ReplacesTable):
    """Sink that replaces all rows of an Iceberg table by those of each run; see :class:`~.sink_protocol.ReplacingSink`.

    Its parameters are those of :class:`.IcebergSink`.
    """
