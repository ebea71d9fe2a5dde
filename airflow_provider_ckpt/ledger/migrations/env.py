"""Alembic's entry point: run the ledger's migrations on a given connection, or on ``sqlalchemy.url``."""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store.tables import VERSION_TABLE, metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        render_as_batch=True,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    address = engines.parse_url(context.config.get_main_option("sqlalchemy.url") or "")
    engine = engines.create_engine(address)
    with engines.open_transaction(engine, engines.describe(address)) as opened:
        _run(opened)
    engine.dispose()
