"""The sink adds missing bookkeeping tables and columns while other runs make claims."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2

from airflow_provider_ckpt.connectors.postgres.bookkeeping_setup import create_tables, lacks_columns
from airflow_provider_ckpt.connectors.postgres.receipts import FENCE, RECEIPT, BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import psycopg_fetch
from tests.services.tables import execute, scalar

_WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"


def test_a_deadlock_with_a_claim_is_tried_again(postgres_database: str) -> None:
    bookkeeping = BookkeepingTables("public")
    execute(postgres_database, bookkeeping.create.format(), f"ALTER TABLE {FENCE} DROP COLUMN target_snapshot")
    with (
        closing(psycopg2.connect(postgres_database)) as creating,
        closing(psycopg2.connect(postgres_database)) as claim,
    ):
        creating.autocommit = True
        with ThreadPoolExecutor(1) as pool, claim.cursor() as cursor:
            cursor.execute("SET deadlock_timeout = '1min'")  # so that the other session is the one that is ended
            cursor.execute(f"SELECT FROM {FENCE} FOR SHARE")
            created = pool.submit(create_tables, psycopg_fetch(creating), bookkeeping, "store", "orders")
            while not scalar(postgres_database, _WAITS, [FENCE]):
                assert not created.done()
            cursor.execute(f"LOCK TABLE {RECEIPT} IN ROW EXCLUSIVE MODE")
            claim.commit()
            created.result(30)

        assert not lacks_columns(psycopg_fetch(creating), bookkeeping)
