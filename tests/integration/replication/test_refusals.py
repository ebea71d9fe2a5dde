"""A run that cannot work is refused, if possible before Spark starts, with one line that says what to do.

The ledger is not harmed: the lease is free, nothing is in flight, and the corrected pipeline delivers each record once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SourceError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.services.database_server import PASSWORD
from tests.services.ledgers import new_ledger_file
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, connection_to
from tests.services.tables import execute, make_source, make_target, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.replication.run.summary import RunSummary

ROWS = 100
ORDERS: dict[str, Any] = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id", "close_wait": "5s"},
    "sink": {"type": "postgres", "connection": "shop", "table": "target"},
}
EVENTS: dict[str, Any] = {
    "name": "events",
    "source": {"type": "files", "path": "{here}/in"},
    "transform": {"decode": "json", "schema": "id bigint, note string"},
    "sink": {"type": "delta", "path": "{here}/table"},
}


class NoSpark:
    """An engine that nobody may start."""

    started = False

    def start(self, job: object) -> None:
        """Nothing of this may reach Spark."""
        raise AssertionError("Spark was started")

    ready = run = start

    def kill(self) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """There is nothing to end."""


@dataclass
class Setup:
    """A ledger, some connections and a directory of a test's own."""

    here: Path
    ledger: Ledger
    connections: Mapping[str, Connection]
    owners: list[str] = field(default_factory=list)

    def run(self, document: Mapping[str, Any], spark: SparkSession | None = None) -> RunSummary:
        """One run, without Spark or on a warm session."""
        text = json.dumps(document).replace("{here}", str(self.here))
        self.owners.append(f"test:{len(self.owners)}")
        setup = PipelineContext(build(json.loads(text)), self.ledger, self._resolve, self.owners[-1])
        return replicate(setup, SessionEngine(spark) if spark else NoSpark())  # type: ignore[arg-type]

    def refused(self, document: Mapping[str, Any], spark: SparkSession | None = None) -> str:
        """Run, expect an error, check that it is one line without a secret and the ledger is unharmed; the line."""
        with pytest.raises(CkptError) as raised:
            self.run(document, spark)
        line = str(raised.value)
        assert "\n" not in line
        assert PASSWORD not in line
        self.check_unharmed(document["name"])
        return line

    def check_unharmed(self, pipeline: str) -> None:
        """No lease is held and nothing is in flight; a pipeline refused before its lease is not even known."""
        if pipeline in self.ledger.pipelines():
            status = self.ledger.status(pipeline)
            assert not status["lease"]["held"]
            assert set(status["batches"]) <= {"planned"}
            assert not status["held"]

    def _resolve(self, name: str) -> Connection:
        if name not in self.connections:
            raise ConfigError(f"the connection {name!r} is not defined.")
        return self.connections[name]


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """Orders, and targets of several kinds."""
    dsn = postgres_server.new_database()
    make_source(dsn, "orders", ROWS)
    make_target(dsn, "target")
    execute(
        dsn,
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE TABLE narrow (id bigint)",
        "CREATE TABLE dated (id bigint, status date)",
        "CREATE ROLE reader LOGIN PASSWORD 'reads'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
    )
    return dsn


@pytest.fixture
def setup(database: str, tmp_path: Path) -> Iterator[Setup]:
    """A setup with good and bad connections."""
    shop = connection_to(database, "shop")
    connections = {
        "shop": shop,
        "locked": replace(shop, id="locked", password="not-it"),
        "down": replace(shop, id="down", port=1),
        "elsewhere": replace(shop, id="elsewhere", schema="nosuch"),
        "lake": replace(shop, id="lake", type="aws"),
        "reader": replace(shop, id="reader", login="reader", password="reads"),
    }
    url = new_ledger_file(tmp_path / "ledger.db")
    (tmp_path / "in").mkdir()
    with Ledger.open(url) as ledger:
        yield Setup(tmp_path, ledger, connections)


def varied(document: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """The document with some keys of its parts changed."""
    changed = copy.deepcopy(dict(document))
    for part, keys in parts.items():
        changed[part] = {**changed.get(part, {}), **keys}
    return changed


DATABASE_REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "undefined connection": ({"source": {"connection": "nope"}}, "the connection 'nope' is not defined"),
    "wrong password": ({"source": {"connection": "locked"}}, "password authentication failed"),
    "nobody listens": ({"source": {"connection": "down"}}, "Connection refused"),
    "no such database": ({"source": {"connection": "elsewhere"}}, 'database "nosuch" does not exist'),
    "connection of another type": ({"source": {"connection": "lake"}}, "has type 'aws', not postgres"),
    "missing table": ({"source": {"table": "nosuch"}}, "source table nosuch does not exist"),
    "missing schema": ({"source": {"table": "nosuch.orders"}}, "source table nosuch.orders does not exist"),
    "not a table's name": ({"source": {"table": "a.b.c"}}, "'a.b.c' is not the name of a table"),
    "missing cursor": ({"source": {"cursor": "nosuch"}}, "has no column 'nosuch', the pipeline's cursor"),
    "cursor in other letter case": ({"source": {"cursor": "ID"}}, "Its columns are: id, customer"),
    "cursor that is text": ({"source": {"cursor": "status"}}, "A cursor must be an integer"),
    "missing column": ({"source": {"columns": ["id", "nosuch"]}}, "has no column nosuch"),
    "target: wrong password": ({"sink": {"connection": "locked"}}, "password authentication failed"),
    "target: nobody listens": ({"sink": {"connection": "down"}}, "Connection refused"),
    "target: missing table": ({"sink": {"table": "nosuch"}}, "target table nosuch does not exist"),
    "target: a view": ({"sink": {"table": "seen"}}, "is not a table"),
    "target: may not be written": ({"sink": {"connection": "reader"}}, "GRANT INSERT ON"),
    "target: key without constraint": ({"sink": {"mode": "upsert", "key": ["id"]}}, "ADD PRIMARY KEY"),
    "target: key that is missing": ({"sink": {"mode": "upsert", "key": ["nosuch"]}}, "has no column nosuch"),
}


@pytest.mark.parametrize(("changes", "said"), DATABASE_REFUSALS.values(), ids=DATABASE_REFUSALS)
def test_what_a_database_lacks_is_refused_before_spark_starts(setup: Setup, changes: dict[str, Any], said: str) -> None:
    assert said in setup.refused(varied(ORDERS, **changes))


FILE_REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "missing directory": ({"source": {"path": "{here}/nosuch"}}, "there is no directory {here}/nosuch"),
    "missing parent of a pattern": (
        {"source": {"path": "{here}/nosuch/*.jsonl"}},
        "there is no directory {here}/nosuch",
    ),
    "another kind of place": ({"source": {"path": "ftp://bucket/in"}}, "ftp:// locations are not supported"),
    "target is a file": ({"sink": {"path": "{here}/file"}}, "{here}/file is a file, not a directory"),
    "target is under a file": ({"sink": {"path": "{here}/file/table"}}, "{here}/file is a file, not a directory"),
    "target holds other things": ({"sink": {"path": "{here}/other"}}, "is not a Delta table and holds other files"),
}


@pytest.mark.parametrize(("changes", "said"), FILE_REFUSALS.values(), ids=FILE_REFUSALS)
def test_what_a_directory_lacks_is_refused_before_spark_starts(
    setup: Setup, changes: dict[str, Any], said: str
) -> None:
    (setup.here / "file").write_text("x")
    (setup.here / "other").mkdir()
    (setup.here / "other" / "notes.txt").write_text("x")
    assert said.replace("{here}", str(setup.here)) in setup.refused(varied(EVENTS, **changes))


def test_an_empty_directory_is_a_run_with_nothing_to_do(setup: Setup) -> None:
    summary = setup.run(EVENTS)
    assert (summary.batches, summary.route, summary.spark_started) == (0, ["done"], False)


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "target lacks columns": (varied(ORDERS, sink={"table": "narrow"}), "narrow has no column customer, amount"),
    "text where the target takes a number": (
        varied(ORDERS, sink={"table": "narrow"}, transform={"select": {"id": "status"}}),
        "have text for id bigint",
    ),
    "target cannot hold the type": (
        varied(ORDERS, sink={"table": "dated"}, transform={"select": {"id": "id", "status": "customer"}}),
        "status is int in the rows and date in the target (write status: cast(status as date))",
    ),
    "target has no such type": (
        varied(ORDERS, sink={"table": "narrow"}, transform={"select": {"id": "array(id)"}}),
        "id is array<bigint> in the rows and bigint in the target",
    ),
    "expression names no column": (
        varied(ORDERS, transform={"where": "nosuch > 1"}),
        "transform.where cannot be used: [UNRESOLVED_COLUMN",
    ),
    "expression does not parse": (
        varied(ORDERS, transform={"select": {"id": "id +"}}),
        "transform.select.id cannot be used: [PARSE_SYNTAX_ERROR]",
    ),
    "expression over other rows": (
        varied(ORDERS, transform={"select": {"id": "max(id)"}}),
        "transform.select.id needs other records than its own",
    ),
}


@pytest.mark.parametrize(("document", "said"), UNFIT.values(), ids=UNFIT)
def test_a_schema_that_does_not_fit_is_refused_and_the_corrected_pipeline_delivers_once(
    setup: Setup, spark: SparkSession, database: str, document: dict[str, Any], said: str
) -> None:
    name = f"orders-{list(UNFIT.values()).index((document, said))}"  # each test has a ledger of its own
    execute(database, "TRUNCATE target")
    assert said in setup.refused({**document, "name": name}, spark)
    good = {**ORDERS, "name": name}
    assert setup.run(good, spark).records.delivered == ROWS
    assert setup.run(good).records.read == 0
    assert scalar(database, "SELECT count(*) FROM target") == ROWS


def test_a_delta_table_of_another_schema_is_refused_and_stays_as_it_is(setup: Setup, spark: SparkSession) -> None:
    (setup.here / "in" / "a.jsonl").write_text('{"id": 1, "note": "x"}\n{"id": 2, "note": "y"}\n')
    assert setup.run(EVENTS, spark).target_rows == 2
    (setup.here / "in" / "b.jsonl").write_text('{"id": 3, "note": "z"}\n')
    line = setup.refused(varied(EVENTS, transform={"select": {"id": "cast(id as string)", "note": "note"}}), spark)
    assert "id is string, the table's is long" in line
    line = setup.refused(varied(EVENTS, transform={"select": {"id": "id", "extra": "note"}}), spark)
    assert "has no column extra; it has id, note" in line
    summary = setup.run(EVENTS, spark)
    assert (summary.records.read, summary.records.delivered, summary.target_rows) == (1, 1, 3)


def test_a_file_that_changed_after_it_was_planned_is_refused_until_it_is_put_back(
    setup: Setup, spark: SparkSession
) -> None:
    first = setup.here / "in" / "a.jsonl"
    first.write_text('{"id": 1, "note": "x"}\n')
    setup.refused(varied(EVENTS, transform={"where": "nosuch"}), spark)
    first.rename(setup.here / "aside")
    assert f"{first} is gone" in setup.refused(EVENTS, spark)
    first.write_text('{"id": 1, "note": "y"}\n{"id": 2, "note": "y"}\n')
    assert f"{first} changed after it was discovered" in setup.refused(EVENTS, spark)
    (setup.here / "aside").rename(first)
    assert setup.run(EVENTS, spark).records.delivered == 1


def test_an_error_of_the_cursor_names_the_pipeline(orders: Replication) -> None:
    assert orders.run().records.delivered == 1000
    execute(orders.dsn, f"UPDATE orders SET id = {2**63 - 1} WHERE id = 1")

    with pytest.raises(SourceError, match="reached the largest 64-bit number") as refused:
        orders.run()

    assert refused.value.pipeline == "orders"
    assert str(refused.value) == orders.ledger.failed_runs("orders")["orders"].error
