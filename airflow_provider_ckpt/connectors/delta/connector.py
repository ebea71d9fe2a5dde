"""Declare the delta connector: the keys of its ``sink`` section, and the classes that implement it."""

from __future__ import annotations

from typing import ClassVar, Literal

from airflow_provider_ckpt.config.connector import Connector, SinkType
from airflow_provider_ckpt.config.fields import RequiredText
from airflow_provider_ckpt.connectors.replacing_sink_section import ReplacingSinkSection

_HERE = "airflow_provider_ckpt.connectors.delta"


class DeltaSinkSection(ReplacingSinkSection):
    """Section ``sink`` of a pipeline that writes to a Delta table.

    :param path: the table's directory: a path, or the URL of a prefix in an object store
    :param mode: ``append`` to add rows, or ``replace`` to replace all rows by those of each run
    :param schema_evolution: ``refuse`` to refuse rows whose columns are not the table's, or ``add_columns`` to add
        columns to the table
    """

    place_key: ClassVar[str] = "path"
    changes_columns: ClassVar[bool] = True

    path: RequiredText
    mode: Literal["append", "replace"] = "append"
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"

    @property
    def adds_columns(self) -> bool:
        """True if new columns of the rows are added to the table (``schema_evolution: add_columns``)."""
        return self.schema_evolution == "add_columns"


def _sink_path(section: DeltaSinkSection) -> str:
    return f"{_HERE}.replacing_sink:DeltaReplacingSink" if section.replaces else f"{_HERE}.sink:DeltaSink"


CONNECTOR = Connector(
    sink=SinkType(
        section=DeltaSinkSection,
        sink=_sink_path,
        writer=f"{_HERE}.writer:DeltaWriter",
        committer=f"{_HERE}.table_opener:open_committer",
        dead_letter_place="airflow_provider_ckpt.connectors.location_names:dead_letter_place",
    ),
    dataset="airflow_provider_ckpt.connectors.location_names:dataset",
    preload=("deltalake", "pyarrow.parquet"),
)
