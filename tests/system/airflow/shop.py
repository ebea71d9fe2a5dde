"""Pipelines of ``test_page_stories.py``: the tables that each needs, and the events before the test."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.postgres.receipts import FENCE
from airflow_provider_ckpt.ledger.store import migrate
from tests.services.postgres import sqlalchemy_url
from tests.services.tables import execute
from tests.system.airflow.deployment import PATIENCE, Declared, Deployment, Kind

_PRICES = """
name: prices
source: {type: postgres, connection: store, table: list, cursor: id}
sink: {type: postgres, connection: store, table: prices}
schema: {new_column: freeze}
recovery: {settle_lag: 0s}
run: {conf: {spark.master: "local[3]"}}
"""
_COUNTRIES = """
name: countries
source: {type: postgres, connection: store, table: land, mode: full}
sink: {type: postgres, connection: store, table: countries, mode: replace}
run: {conf: {spark.master: "local[3]"}}
"""
_PASSES = """
CREATE FUNCTION passes() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('countries'));
    RETURN true;
END $$
"""
"""The gate of ``countries`` as a constraint, which its staging tables have as well."""


def declare(deployment: Deployment) -> None:
    """Write the declarations, before Airflow starts, and make sources and targets."""
    deployment.declare([Declared("orders", Kind.SINGLE), Declared("stock", Kind.SINGLE)])
    (deployment.dags / Kind.SINGLE / "prices.yaml").write_text(_PRICES)
    (deployment.dags / Kind.SINGLE / "countries.yaml").write_text(_COUNTRIES)
    execute(
        deployment.store,
        "ALTER TABLE orders ADD CONSTRAINT small CHECK (id < 1000)",
        "CREATE TABLE list (id int PRIMARY KEY, price int)",
        "INSERT INTO list VALUES (1, 10)",
        "CREATE TABLE prices (id int, price int)",
        "CREATE TABLE land (id int)",
        "INSERT INTO land SELECT generate_series(1, 100)",
        _PASSES,
        "CREATE TABLE countries (id int CHECK (passes()))",
    )


def prepare(deployment: Deployment, lost: str) -> None:
    """Let the pipelines run until ``orders`` has dead letters, and a batch that is held because the target was busy.

    After that, the source of ``prices`` has a column that its target lacks, and the target of ``stock`` has rows of a
    lost ledger. ``countries`` has not run.

    :param deployment: its Airflow runs
    :param lost: the dsn of an empty database for the ledger that is lost
    """
    deployment.write("orders", range(990, 1003))
    for name, run_id in [(name, deployment.begin(name)) for name in ("orders", "prices", "stock")]:
        deployment.succeeds(name, run_id)
    deployment.write("orders", range(80))
    deployment.refuse("orders", whether=True)
    held = deployment.begin("orders")
    execute(
        deployment.store,
        "ALTER TABLE list ADD currency text DEFAULT 'EUR'",
        "INSERT INTO list VALUES (2, 20, 'USD')",
        f"DELETE FROM {FENCE} WHERE pipeline = 'stock'",  # as in a copy of the target that a lost ledger wrote to
    )
    deployment.write("stock", range(3))
    ledger = sqlalchemy_url(lost)
    migrate.upgrade(ledger, create=True)
    env = {"AIRFLOW__CKPT__SQL_ALCHEMY_CONN": ledger}
    deployment.airflow.cli("ckpt", "run", str(deployment.declarations["stock"]), env=env)
    assert deployment.airflow.wait("orders", held, PATIENCE) == "failed"
