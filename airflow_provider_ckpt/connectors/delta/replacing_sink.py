"""Prepare and inspect a Delta table whose rows each run replaces (``mode: replace``); see ``sink.py``."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.two_phase.replacement import ReplacesTable


class DeltaReplacingSink(DeltaSink, ReplacesTable):
    """Sink that replaces all rows of a Delta table by those of each run; see :class:`~.sink_protocol.ReplacingSink`.

    Its parameters are those of :class:`.DeltaSink`.
    """
