"""The catalog of a source database: the tables that a declaration of many tables can select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of a source database.

    :param schema: name of the table's schema; in MySQL and MariaDB, of its database
    :param name: name of the table
    :param reference: schema and table in the form of the key ``table`` of the section ``source``, quoted where needed
    :param columns: names of the columns, in order
    :param key: names of the columns of the primary key, in order; empty if there is none
    :param rows: number of rows as the database estimates it; None if unknown
    """

    schema: str
    name: str
    reference: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    rows: int | None = None

    @property
    def label(self) -> str:
        """Schema and name as ``schema.table``: the text that patterns match, and the key of the section ``tables``."""
        return f"{self.schema}.{self.name}"


Catalog = Sequence[CatalogTable]
"""All tables of a source database."""
