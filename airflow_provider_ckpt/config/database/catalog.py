"""Tables of a source database, as its catalog lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of a source database.

    :param schema: name of its schema; in MySQL and MariaDB, of its database
    :param name: name of the table
    :param reference: the table as the key ``table`` of the section ``source`` names it, quoted where it must be
    :param columns: names of its columns, in order
    :param key: names of the columns of its primary key, in order; empty without one
    :param rows: number of its rows as the database estimates it; None if unknown
    """

    schema: str
    name: str
    reference: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    rows: int | None = None

    @property
    def label(self) -> str:
        """Schema and name as ``schema.table``, which patterns match and overrides name."""
        return f"{self.schema}.{self.name}"


Catalog = Sequence[CatalogTable]
"""All tables of a source database."""
