"""Declare the connector; the module imports no driver, since every process that parses a DAG imports it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from airflow_provider_ckpt.config.connector import Connector, SinkType, SourceType
from airflow_provider_ckpt.config.fields import RequiredText
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection


def _absolute(path: str) -> str:
    if not PurePath(path).is_absolute():
        raise ValueError(f"{path} is relative; write the whole path, since processes have other working directories")
    return path


FilePath = Annotated[RequiredText, AfterValidator(_absolute)]


class SqliteSourceSection(SourceSection):
    """Table to read.

    :param path: the database's file
    :param table: name of the table
    """

    place_key: ClassVar[str] = "table"

    path: FilePath
    table: RequiredText


class SqliteSinkSection(SinkSection):
    """Table to write to.

    :param path: the database's file
    :param table: name of the table, which must exist
    """

    place_key: ClassVar[str] = "table"

    path: FilePath
    table: RequiredText


CONNECTOR = Connector(
    source=SourceType(
        section=SqliteSourceSection,
        source="ckpt_sqlite.source:SqliteSource",
        reader="ckpt_sqlite.source:SqliteReader",
    ),
    sink=SinkType(
        section=SqliteSinkSection,
        sink="ckpt_sqlite.sink:SqliteSink",
        writer="ckpt_sqlite.writer:SqliteWriter",
        dead_letter_place="ckpt_sqlite.database:dead_letter_place",
    ),
    preload=("sqlite3",),
)
