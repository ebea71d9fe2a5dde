"""``airflow ckpt schema``: show the schema versions of a table, and accept a changed column."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.integration.airflow.ckpt import Ckpt
from tests.services.replication import DATABASE, connection_to, orders_pipeline
from tests.services.tables import execute, make_source, make_target


class Shop:
    """Pipeline ``orders`` whose source's columns change; its runs only plan."""

    def __init__(self, ledger: Ledger, dsn: str) -> None:
        self.ledger, self.dsn = ledger, dsn
        make_source(dsn, "orders", 10)
        make_target(dsn, "target")

    def plan(self, **keys: object) -> None:
        """A run that ends after planning."""
        pipeline = build({**orders_pipeline(), "schema": {}, **keys})
        with acquire(PipelineContext(pipeline, self.ledger, lambda _: connection_to(self.dsn), "test")) as run:
            run.plan()
            run.finish()

    def alter(self, change: str) -> None:
        """Alter the source."""
        execute(self.dsn, f"ALTER TABLE orders {change}")


@pytest.fixture
def shop(ledger: Ledger, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A source whose columns have a first version."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{DATABASE.upper()}", postgres_database)
    found = Shop(ledger, postgres_database)
    found.plan()
    return found


def test_a_change_is_shown_accepted_followed_and_told_by_the_history(ckpt: Ckpt, shop: Shop) -> None:
    shop.alter("ALTER amount TYPE text")
    with pytest.raises(SourceError, match="airflow ckpt schema accept orders"):
        shop.plan()

    seen = ckpt.json("schema", "accept", "orders", "--dry-run")
    shown = ckpt.table("schema", "accept", "orders", "--dry-run")
    accepting = ("schema", "accept", "orders", "--fingerprint", seen["fingerprint"], "--reason", "agreed")
    stored = ckpt.json(*accepting)
    again = ckpt.refused(*accepting)

    assert (seen["applied"], seen["dry_run"], seen["intent"]) == (False, True, None)
    assert "has type text now" in seen["changes"][0]
    assert seen["fingerprint"] in shown
    assert "to accept it: airflow ckpt schema accept orders --fingerprint" in shown
    assert (stored["applied"], stored["intent"], stored["next"]) == (False, 1, "the next run follows the change")
    assert "has accepted this change already, as action 1" in again
    [waiting] = ckpt.json("status", "orders")["intents"]
    assert (waiting["action"], waiting["reason"]) == ("accept_schema", "agreed")
    execute(shop.dsn, "ALTER TABLE target ALTER amount TYPE text")
    shop.plan()
    versions = ckpt.json("schema", "history", "orders")["versions"]
    assert [item["version"] for item in versions] == [1, 2]
    assert versions[1]["decision"][-1].endswith(": agreed")
    assert {"amount": "text"}.items() <= {item["name"]: item["type"] for item in versions[1]["columns"]}.items()
    assert "agreed" in ckpt.table("schema", "history", "orders")
    assert ckpt.json("status", "orders")["intents"] == []


def test_an_acceptance_names_the_columns_that_were_shown_and_a_reason(ckpt: Ckpt, shop: Shop) -> None:
    shop.alter("ADD COLUMN remark text")
    fingerprint = ckpt.json("schema", "accept", "orders", "--dry-run")["fingerprint"]

    assert "needs the fingerprint" in ckpt.refused("schema", "accept", "orders", "--reason", "agreed")
    assert "needs a reason" in ckpt.refused("schema", "accept", "orders", "--fingerprint", fingerprint)
    shop.alter("ADD COLUMN more text")
    refused = ckpt.refused("schema", "accept", "orders", "--fingerprint", fingerprint, "--reason", "agreed")
    assert f", not {fingerprint}. Nothing was accepted." in refused
    assert ckpt.json("status", "orders")["intents"] == []


def test_without_a_change_or_a_pipeline_the_commands_say_so(ckpt: Ckpt, shop: Shop) -> None:
    assert "there is nothing to accept" in ckpt.refused("schema", "accept", "orders", "--dry-run")
    assert "nobody" in ckpt.refused("schema", "history", "nobody")
