"""Declare the iceberg connector: the keys of its ``sink`` section, and the classes that implement it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from airflow_provider_ckpt.config.connector import Connector, SinkType
from airflow_provider_ckpt.config.fields import RequiredText
from airflow_provider_ckpt.connectors.replacing_sink_section import ReplacingSinkSection

_HERE = "airflow_provider_ckpt.connectors.iceberg"


def _qualified(table: str) -> str:
    if not all(table.partition(".")):
        raise ValueError("must be namespace.table for an iceberg sink")
    return table


class IcebergSinkSection(ReplacingSinkSection):
    """Section ``sink`` of a pipeline that writes to an Iceberg table.

    :param connection: Airflow connection id of the catalog
    :param table: name of the table, as ``namespace.table``
    :param mode: ``append`` to add rows, or ``replace`` to replace all rows by those of each refresh
    :param schema_evolution: ``refuse`` to refuse rows whose columns are not the table's, or ``add_columns`` to add
        columns to the table
    """

    place_key: ClassVar[str] = "table"
    changes_columns: ClassVar[bool] = True

    connection: RequiredText
    table: Annotated[RequiredText, AfterValidator(_qualified)]
    mode: Literal["append", "replace"] = "append"
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"

    @property
    def adds_columns(self) -> bool:
        """True if new columns of the rows are added to the table (``schema_evolution: add_columns``)."""
        return self.schema_evolution == "add_columns"


def _sink_path(section: IcebergSinkSection) -> str:
    return f"{_HERE}.replacing_sink:IcebergReplacingSink" if section.replaces else f"{_HERE}.sink:IcebergSink"


CONNECTOR = Connector(
    sink=SinkType(
        section=IcebergSinkSection,
        sink=_sink_path,
        writer=f"{_HERE}.writer:IcebergWriter",
        committer=f"{_HERE}.table_opener:open_committer",
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
    ),
    dataset=f"{_HERE}.names:dataset",
    preload=("pyiceberg.table", "pyarrow.parquet"),
)
