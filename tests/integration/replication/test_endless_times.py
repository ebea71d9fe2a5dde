"""Records with PostgreSQL's infinity, or times that Spark cannot represent, are rejected if the time would change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import ErrorType, SourceError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, make_action, read_contents
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from tests.integration.connectors.files.files_sink_support import rows
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = "294276-12-31T23:59:59"
TERMS = {
    1: ("2030-01-01", "2030-01-01T00:00:00"),
    2: ("infinity", "2030-01-01T00:00:00"),
    3: ("2030-01-01", "-infinity"),
    4: ("2030-01-01", LAST),
}
"""By id, a day and a time; the last one is PostgreSQL's last."""


@pytest.fixture
def terms(spark: SparkSession, postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """Those rows, and a target of the same columns."""
    execute(
        postgres_database,
        "CREATE TABLE terms (id bigint PRIMARY KEY, until date, at timestamp)",
        *(f"INSERT INTO terms VALUES ({n}, '{until}', '{at}')" for n, (until, at) in TERMS.items()),
        "CREATE TABLE kept (id bigint, until date, at timestamp, told text)",
    )
    with make_ledger(postgres_server) as ledger:
        yield Replication(spark, ledger, postgres_database, orders_pipeline(source="terms", target="kept"))


def dead_letters(terms: Replication) -> dict[int, dict[str, Any]]:
    """The rows of all dead letters by position."""
    setup = terms.setup()
    found = [kept.dead_letter for _, kept in read_contents(setup, load_index(setup).entries)]
    assert {dead_letter.error.type for dead_letter in found} <= {ErrorType.SERIALIZATION, ErrorType.SINK}
    return {dead_letter.position: json.loads(dead_letter.value or b"") for dead_letter in found}


def row(number: int) -> dict[str, Any]:
    until, at = TERMS[number]
    return {"id": number, "until": until, "at": at}


@pytest.mark.parametrize(
    ("transform", "bad"),
    [
        ({"where": "until > date'2024-01-01'", "select": {"id": "id"}}, [2]),
        ({"select": {"id": "id", "until": "date_add(UNTIL, 1)"}}, [2]),
        ({"select": {"id": "id", "told": "cast(`at` AS string)"}}, [3, 4]),
    ],
    ids=["where", "a day later", "as text"],
)
def test_what_an_expression_would_take_for_another_time_costs_its_record(
    terms: Replication, transform: dict[str, Any], bad: list[int]
) -> None:
    summary = terms.changed(transform=transform).run()

    assert summary.records == Counts(4, 4 - len(bad), 0, len(bad))
    assert dead_letters(terms) == {number: row(number) for number in bad}


def test_infinity_arrives_as_it_is_from_columns_that_no_expression_names(terms: Replication) -> None:
    summary = terms.changed(transform={"where": "id > 1", "select": {"id": "id", "until": "until", "at": "`at`"}}).run()

    assert summary.records == Counts(4, 2, 1, 1)
    assert execute(terms.dsn, "SELECT id, until::text, at::text FROM kept ORDER BY id") == [
        (2, "infinity", "2030-01-01 00:00:00"),
        (3, "2030-01-01", "-infinity"),
    ]
    assert dead_letters(terms) == {4: row(4)}


def test_dead_letters_with_such_times_are_replayed_as_they_were(terms: Replication) -> None:
    execute(
        terms.dsn,
        "UPDATE terms SET until = '0044-03-15 BC', at = '20000-01-01 12:00' WHERE id IN (1, 4)",
        "ALTER TABLE kept ADD CONSTRAINT none CHECK (id < 0)",
    )
    assert terms.run().records == Counts(4, 0, 0, 4)
    execute(terms.dsn, "ALTER TABLE kept DROP CONSTRAINT none")

    setup = terms.setup()
    apply_fenced_or_store(
        setup, make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection()), actor="ann", reason="mended"
    )

    assert terms.run().records == Counts(4, 4, 0, 0)
    assert execute(terms.dsn, "SELECT count(*) FROM kept JOIN terms USING (id, until, at)") == [(4,)]


@pytest.mark.parametrize("direct", [True, False], ids=["copied", "through Spark"])
def test_for_a_sink_that_has_no_infinity_it_costs_its_record(terms: Replication, tmp_path: Path, direct: bool) -> None:
    document = {**terms.document, "sink": {"type": "files", "path": str(tmp_path / "out"), "format": "jsonl"}}
    terms.document = document if direct else {**document, "transform": {"where": "id < 9"}}

    assert terms.run().records == Counts(4, 1, 0, 3)
    assert rows(tmp_path / "out") == [{"id": 1, "until": "2030-01-01", "at": "2030-01-01T00:00:00.000000"}]
    assert dead_letters(terms) == {number: row(number) for number in (2, 3, 4)}


def test_infinity_in_a_column_that_is_not_used_costs_nothing(terms: Replication, tmp_path: Path) -> None:
    sink = {"type": "files", "path": str(tmp_path / "out"), "format": "jsonl"}
    terms.document = {**terms.document, "sink": sink, "transform": {"select": {"id": "id"}}}

    assert terms.run().records == Counts(4, 4, 0, 0)


@pytest.mark.parametrize("cursor", ["at", "id"])
def test_the_error_for_a_cursor_without_a_position_names_the_pipeline(terms: Replication, cursor: str) -> None:
    execute(terms.dsn, f"INSERT INTO terms (id) VALUES ({2**63 - 1})", "UPDATE terms SET at = 'infinity'")

    with pytest.raises(SourceError) as raised:
        terms.changed(source={"cursor": cursor}).run()

    assert str(raised.value).startswith(f"[Source] pipeline orders: cursor {cursor} of public.terms ")
