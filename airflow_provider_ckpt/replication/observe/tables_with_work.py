"""Find the tables of a source database that have work, by one comparison of its catalog and rows with the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.database.expand import expand
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.ledger.queries.database_progress import PipelineProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ckpt.config.database.expansion import Expansion
    from airflow_provider_ckpt.config.database.model import Database
    from airflow_provider_ckpt.connectors.connection import Connection
    from airflow_provider_ckpt.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class TablesWithWork:
    """Tables of a database that have work: new records, or batches that an earlier run left.

    :param database: the declaration of the database
    :param expansion: the pipelines of its tables, and the errors of tables for which no pipeline can be made
    :param work: approximate number of new records of each table with work, by ``schema.table``, in descending order. A
        table with 0 has other work, such as batches of an earlier run, or an error that its own run reports
    """

    database: Database
    expansion: Expansion
    work: Mapping[str, int]

    @property
    def in_order(self) -> list[str]:
        """Names of the tables with work in the order in which their runs begin: fewest new records first.

        So a table does not wait for tables that have more records.
        """
        return sorted(self.work, key=lambda name: (self.work[name], name))


def find_tables_with_work(
    database: Database,
    ledger: Ledger,
    connections: Callable[[str], Connection],
    *,
    only: Collection[str] | None = None,
) -> TablesWithWork:
    """Compare all tables of a database with the ledger, without a lease, and return those that have work.

    :param database: the declaration of the database
    :param ledger: the ledger, open
    :param connections: returns the connection of an id, or raises :class:`ConfigError`
    :param only: names of the tables to compare, as ``schema.table``, so that all other tables count as having no work;
        None to compare all tables
    :raises ConfigError: if the connector of the source does not support declarations of many tables
    :raises SourceError: if the database cannot be reached
    """
    connection = connections(database.connection) if database.connection else None
    progress = ledger.database_progress(database.name)
    with closing(registry.open_database(database, connection)) as source:
        expansion = expand(database, source.read_catalog(), progress)
        fresh = PipelineProgress()
        tables = {
            label: progress.get(pipeline.name, fresh)
            for label, pipeline in expansion.pipelines.items()
            if only is None or label in only
        }
        counts = source.count_new_records(
            [
                TableProgress(expansion.pipelines[label], item.planned_end, item.state, item.identity)
                for label, item in tables.items()
            ]
        )
    found = {label: counts.get(expansion.names[label]) for label in tables}
    work = {label: count or 0 for label, count in found.items() if count is not None or tables[label].unfinished}
    return TablesWithWork(database, expansion, dict(sorted(work.items(), key=lambda item: (-item[1], item[0]))))
