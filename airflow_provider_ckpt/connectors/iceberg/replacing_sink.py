"""Control side of the iceberg sink with ``mode: replace``."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.two_phase.replacement import ReplacesTable


class IcebergReplacingSink(IcebergSink, ReplacesTable):
    """Sink that replaces all rows of an Iceberg table; see :class:`~.sink_protocol.ReplacingSink`.

    Its parameters are those of :class:`.IcebergSink`.
    """
