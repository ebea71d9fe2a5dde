"""Run the conformance suite of sinks on a pipeline's database, for ``airflow ckpt validate --conformance``.

Each test creates a table in the schema of the pipeline's target, and drops it at its end. The ledger ids in the tests
are used nowhere else, so the target and the bookkeeping of other pipelines are not changed. Missing bookkeeping tables
are created and remain.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.sql.bookkeeping import Bookkeeping
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.names import DEAD_LETTER, quote, split_name
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import LEDGER, OTHER_LEDGER, SinkHarness, StoredDeadLetter

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.pipeline import Pipeline

FILE = "AIRFLOW_CKPT_CONFORMANCE_FILE"
"""Name of the environment variable with the path of the pipeline's YAML file."""


class DeclaredTableHarness(SinkHarness):
    """Harness with a new table in the schema of a pipeline's target. Creating the object creates the table.

    :param pipeline: declaration of the pipeline, whose sink has type ``sql``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        import sqlalchemy as sa

        self._connection = resolve_connection(str(pipeline.sink.connection))
        self._database = Database(self._connection, "sink")
        target_schema, _ = split_name(pipeline.sink.place)
        name = f"ckpt_conformance_{secrets.token_hex(6)}"
        table = f"{quote(target_schema)}.{name}" if target_schema else name
        section = {"mode": "append", "key": (), "table": table, "untested_dialect": True}
        self._pipeline = pipeline.model_copy(update={"sink": pipeline.sink.model_copy(update=section)})
        options = dict(self._database.dialect.table_options())
        self._table = sa.Table(name, sa.MetaData(schema=target_schema), sa.Column("id", sa.BigInteger()), **options)
        with self._database.session(f"creating {table}", writes=True) as connection:
            self._table.create(connection)
            found = self._database.dialect.find_table(connection, target_schema, name)
            assert found is not None
            self._schema = found.schema
            self._forget(connection)

    def sink(self, context: SinkContext) -> Sink:
        """Open the sink on the new table; see :meth:`SinkHarness.sink`.

        :param context: ledger, pipeline and epoch of the run
        """
        return registry.open_sink(self._of(context), self._connection, context)

    def writer(self, context: SinkContext) -> Writer:
        """Open a writer to the new table; see :meth:`SinkHarness.writer`.

        :param context: ledger, pipeline and epoch of the run
        """
        return registry.open_writer(self._of(context), self._connection, context)

    def target(self) -> list[int]:
        """Return the ids in the new table; see :meth:`SinkHarness.target`."""
        import sqlalchemy as sa

        with self._database.session("reading the table") as connection:
            return sorted(int(number) for number in connection.execute(sa.select(self._table.c.id)).scalars())

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        """Return the stored dead letters of a pipeline; see :meth:`SinkHarness.dead_letters`.

        :param context: ledger and pipeline
        """
        import sqlalchemy as sa

        c = Bookkeeping(self._database.dialect, self._schema, context).table(DEAD_LETTER).c
        query = sa.select(c.seq, c.position, c.key, c.value, c.error_type).order_by(c.position)
        query = query.where(c.ledger == context.ledger, c.pipeline == context.pipeline)
        with self._database.session("reading dead letters") as connection:
            return [StoredDeadLetter(*row) for row in connection.execute(query)]

    def remove(self) -> None:
        """Drop the new table, and remove the suite's rows from the bookkeeping."""
        with self._database.session("removing the table", writes=True) as connection:
            self._table.drop(connection)
            self._forget(connection)
        self._database.close()

    def _of(self, context: SinkContext) -> Pipeline:
        return self._pipeline.model_copy(update={"name": context.pipeline})

    def _forget(self, connection: sa.Connection) -> None:
        books = Bookkeeping(self._database.dialect, self._schema, SinkContext(LEDGER, "orders", 1))
        for table in reversed(books.metadata.sorted_tables):
            if self._database.dialect.find_table(connection, self._schema or None, table.name) is not None:
                connection.execute(table.delete().where(table.c.ledger.in_([LEDGER, OTHER_LEDGER])))


class TestDeclaredSqlSink(SinkConformance):
    """Conformance suite of the ``sql`` sink, run in the database of a pipeline's target.

    The environment variable :data:`FILE` contains the path of the pipeline's declaration. Each test writes to a new
    table in the schema of the target, not to the target itself.
    """

    @pytest.fixture
    def harness(self) -> Iterator[SinkHarness]:
        """Yield a harness with a new table in the schema of the pipeline's target; drop the table after the test."""
        harness = DeclaredTableHarness(load(os.environ[FILE]))
        yield harness
        harness.remove()
