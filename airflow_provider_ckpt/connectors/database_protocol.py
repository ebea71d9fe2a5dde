"""Interface of a source database: read its catalog, and count the new rows of many tables at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.catalog import Catalog
    from airflow_provider_ckpt.config.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Position up to which the pipeline of one table has planned.

    :param pipeline: name of the pipeline
    :param planned_end: position before which everything was planned; None if the pipeline has not begun
    :param state: JSON-ready values that the source stored at its last planning; see :attr:`.Plan.states`
    :param identity: identity of the table when the pipeline began; see :attr:`.SourcePartition.identity`
    """

    pipeline: Pipeline
    planned_end: int | None = None
    state: Mapping[str, Any] | None = None
    identity: str | None = None


class SourceDatabase(Protocol):
    """Interface of a database whose tables are sources; its methods only read from the database."""

    def read_catalog(self) -> Catalog:
        """Return all tables of the database that can be sources, with their columns, in one query.

        Tables of the system and of this package are left out, and so are the partitions of a table.

        :raises SourceError: if the database cannot be reached
        """

    def count_new_records(self, tables: Sequence[TableProgress]) -> Mapping[str, int]:
        """Return the approximate number of new records of each table that may have any, by the name of its pipeline.

        A table may be left out only if its next planning would find nothing: neither a record to plan nor a reason to
        fail. A table about which nothing is known, because it is gone or may not be read, has 0: its own run
        reports the error.

        :param tables: the tables, each with the position up to which it was planned
        :raises SourceError: if the database cannot be reached
        """

    def close(self) -> None:
        """Close the connection."""
