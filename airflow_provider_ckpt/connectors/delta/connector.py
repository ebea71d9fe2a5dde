"""Connector of Delta tables."""

from __future__ import annotations

from typing import ClassVar, Literal

from airflow_provider_ckpt.config.connector import Connector, SinkType
from airflow_provider_ckpt.config.fields import RequiredText
from airflow_provider_ckpt.config.sink import SinkSection

_HERE = "airflow_provider_ckpt.connectors.delta"


class DeltaSinkSection(SinkSection):
    """Delta table.

    :param path: the table's directory
    :param schema_evolution: ``refuse`` rows whose columns are not the table's, or ``add_columns``
    """

    place_key: ClassVar[str] = "path"

    path: RequiredText
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"

    @property
    def adds_columns(self) -> bool:
        """True with ``schema_evolution: add_columns``; see :attr:`SinkSection.adds_columns`."""
        return self.schema_evolution == "add_columns"


CONNECTOR = Connector(
    sink=SinkType(
        section=DeltaSinkSection,
        sink=f"{_HERE}.sink:DeltaSink",
        writer=f"{_HERE}.writer:DeltaWriter",
        committer=f"{_HERE}.table_opener:open_committer",
        dead_letter_place="airflow_provider_ckpt.connectors.location_names:dead_letter_place",
    ),
    dataset="airflow_provider_ckpt.connectors.location_names:dataset",
    preload=("deltalake", "pyarrow.parquet"),
)
