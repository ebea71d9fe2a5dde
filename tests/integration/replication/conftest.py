"""Fixtures of these tests: a database with orders, and a replication of them that tests vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.replication.schema_driver import EVOLVE
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute, make_source, make_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 1000


@pytest.fixture
def orders(spark: SparkSession, postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """1,000 orders, an empty target without a key, and a pipeline that cuts batches of 100."""
    make_source(postgres_database, "orders", ORDERS)
    make_target(postgres_database, "target")
    with make_ledger(postgres_server) as ledger:
        replication = Replication(spark, ledger, postgres_database, orders_pipeline())
        yield replication.changed(commit_strategy={"commit_interval": 100})


@pytest.fixture
def items(orders: Replication) -> Replication:
    """An empty source and target, and a pipeline that follows every change, in batches of 10."""
    columns = "id int, name varchar(8) NOT NULL, size int, price numeric(6, 2), day date"
    execute(orders.dsn, f"CREATE TABLE items ({columns}, PRIMARY KEY (id))", f"CREATE TABLE items_target ({columns})")
    return orders.changed(
        source={"table": "items"},
        sink={"table": "items_target"},
        schema=EVOLVE,
        commit_strategy={"commit_interval": 10},
    )
