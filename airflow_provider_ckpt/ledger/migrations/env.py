"""Alembic's entry point: run the ledger's migrations on the caller's connection, or on ``sqlalchemy.url``."""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import database
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
    address = database.parse_url(context.config.get_main_option("sqlalchemy.url") or "")
    engine = database.create_engine(address)
    with database.open_transaction(engine, database.describe(address)) as opened:
        _run(opened)
    engine.dispose()
