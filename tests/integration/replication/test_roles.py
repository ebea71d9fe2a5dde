"""Pipelines under roles with few privileges on a real PostgreSQL run, and may do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.roles import SinkRoles
from airflow_provider_ckpt.core.errors import ConfigError, LedgerUnavailableError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from airflow_provider_ckpt.ledger.store.roles import LedgerRoles
from airflow_provider_ckpt.ledger.store.tables import VERSION_TABLE
from airflow_provider_ckpt.replication.run.replicate import replicate
from tests.integration.ledger.ledger_driver import LedgerDriver
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import add_rows, execute, make_source, make_target, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "few-rights"
ODD = "o'd\"d $ckpt$ \\name"


@dataclass
class Place:
    """A database and the names of its roles."""

    server: PostgresServer
    dsn: str

    @property
    def name(self) -> str:
        """Return the name of the database."""
        return urlsplit(self.dsn).path.removeprefix("/")

    def dsn_of(self, role: str) -> str:
        """The same for a role; it gets a password."""
        with psycopg2.connect(self.dsn) as connection, connection.cursor() as cursor:
            quoted = psycopg2.extensions.quote_ident(role, connection)
            cursor.execute(f"ALTER ROLE {quoted} PASSWORD %s", [PASSWORD])
        connection.close()
        return self.server.database_dsn(self.name, role, PASSWORD)

    def refused(self, role: str, *statements: str) -> None:
        """Each of these is refused to the role for want of rights."""
        dsn = self.dsn_of(role)
        for statement in statements:
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                execute(dsn, statement)


@pytest.fixture
def place(postgres_server: PostgresServer, postgres_database: str) -> Place:
    """A database of the test's own."""
    return Place(postgres_server, postgres_database)


def roles_of(place: Place) -> LedgerRoles:
    """Roles belong to the whole server, so each test has its own."""
    return LedgerRoles("led ger", *(f"{place.name}_{role}" for role in ("owner", "runtime", "reader")))


@pytest.fixture
def ledger(place: Place) -> Iterator[tuple[Ledger, LedgerRoles]]:
    """A ledger that its owner has migrated, opened by the runtime role."""
    roles = roles_of(place)
    execute(place.dsn, roles.sql)
    migrate.upgrade(sqlalchemy_url(place.dsn_of(roles.owner)))
    execute(place.dsn, roles.sql)
    with Ledger.open(sqlalchemy_url(place.dsn_of(roles.runtime))) as opened:
        yield opened, roles


def test_a_pipeline_runs_under_roles_that_may_create_nothing(
    ledger: tuple[Ledger, LedgerRoles], place: Place, postgres_server: PostgresServer, spark: SparkSession
) -> None:
    opened, _ = ledger
    shop = Place(postgres_server, postgres_server.new_database())
    make_source(shop.dsn, "orders", 100)
    make_target(shop.dsn, "target")
    execute(shop.dsn, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "ALTER TABLE target ADD CHECK (id <> 50)")
    writer, reader = f"{shop.name}_writer", f"{shop.name}_reader"
    sink = SinkRoles("public", writer, reader, ["target"], pipelines=["orders"])
    execute(shop.dsn, sink.sql, f"GRANT SELECT ON orders TO {writer}", sink.sql)
    replication = Replication(spark, opened, shop.dsn_of(writer), orders_pipeline())

    summary = replication.changed(commit_strategy={"commit_interval": 25}).run()

    assert summary.records == Counts(100, 99, 0, 1)
    assert scalar(shop.dsn, "SELECT count(*) FROM target") == 99
    assert scalar(shop.dsn_of(reader), "SELECT sum(delivered) FROM ckpt_sink_receipt") == 99
    shop.refused(
        writer,
        "CREATE TABLE mine (id int)",
        "DROP TABLE target",
        "TRUNCATE target",
        "DELETE FROM target",
        "ALTER TABLE target ADD extra int",
        "DELETE FROM ckpt_sink_receipt",
        "DELETE FROM ckpt_sink_dead_letter",
        "DROP TABLE ckpt_sink_fence",
    )
    shop.refused(reader, "INSERT INTO ckpt_sink_replay VALUES ('l', 'p', 'x', '{}')", "SELECT count(*) FROM target")


def test_targets_are_created_and_replaced_under_roles_that_may_do_just_that(
    ledger: tuple[Ledger, LedgerRoles], place: Place, postgres_server: PostgresServer
) -> None:
    opened, _ = ledger
    shop = Place(postgres_server, postgres_server.new_database())
    make_source(shop.dsn, "orders", 100)
    execute(shop.dsn, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "CREATE SCHEMA dwh")
    make_target(shop.dsn, "dwh.replaced")
    writer, reader = f"{shop.name}_writer", f"{shop.name}_reader"
    creating = SinkRoles("dwh", writer, reader, pipelines=["orders"], create=True)
    replacing = SinkRoles("dwh", writer, reader, ["replaced"], pipelines=["replaced"], replace=True)
    document = orders_pipeline()
    sink = {**document["sink"], "table": "dwh.created", "create": True}
    full = {**document["source"], "mode": "full"}
    del full["cursor"]

    execute(shop.dsn, creating.sql, f"GRANT SELECT ON orders TO {writer}")
    created = Replication(None, opened, shop.dsn_of(writer), {**document, "sink": sink})  # type: ignore[arg-type]
    first = replicate(created.setup(), PlainEngine())
    execute(shop.dsn, replacing.sql)
    shop.refused(writer, "UPDATE dwh.replaced SET id = 1")
    sink = {**document["sink"], "table": "dwh.replaced", "mode": "replace"}
    document = {**document, "name": "replaced", "source": full, "sink": sink}
    replaced = Replication(None, opened, shop.dsn_of(writer), document)  # type: ignore[arg-type]
    second = replicate(replaced.setup(), PlainEngine())

    assert (first.records.delivered, second.records.delivered) == (100, 100)
    assert scalar(shop.dsn, "SELECT count(*) FROM dwh.created JOIN dwh.replaced USING (id)") == 100
    execute(shop.dsn, f"GRANT SELECT ON dwh.created TO {reader}", creating.sql)
    add_rows(shop.dsn, "orders", 101, 111)
    assert replicate(created.setup(), PlainEngine()).records.delivered == 10
    execute(shop.dsn, SinkRoles("dwh", writer, reader).sql)
    shop.refused(writer, "CREATE TABLE dwh.mine (id int)", "DELETE FROM dwh.replaced", "DELETE FROM dwh.created")


def test_the_runtime_role_works_on_the_ledger_and_has_no_ddl(ledger: tuple[Ledger, LedgerRoles], place: Place) -> None:
    opened, roles = ledger
    LedgerDriver(opened).start("t").deliver(10, 20)

    assert LedgerDriver(opened, "first").partition().committed == 20
    place.refused(
        roles.runtime,
        "CREATE TABLE mine (id int)",
        'CREATE TABLE "led ger".mine (id int)',
        "DROP TABLE ckpt_batch",
        "TRUNCATE ckpt_batch",
        "ALTER TABLE ckpt_batch ADD extra int",
        f"UPDATE {VERSION_TABLE} SET version_num = '0001'",
        "UPDATE ckpt_ledger SET id = 'other'",
        "DELETE FROM ckpt_event",
        "UPDATE ckpt_event SET actor = 'nobody'",
    )


def test_what_the_runtime_role_may_not_do_is_said_with_who_may(ledger: tuple[Ledger, LedgerRoles]) -> None:
    opened, _ = ledger
    LedgerDriver(opened).start("t").deliver(10)

    with pytest.raises(
        LedgerUnavailableError, match=r"permission denied.*Only the owner may migrate the ledger and delete history"
    ):
        opened.garbage_collect("orders", keep=timedelta(0), actor="ann")


def test_the_reader_sees_everything_and_changes_nothing(ledger: tuple[Ledger, LedgerRoles], place: Place) -> None:
    opened, roles = ledger
    LedgerDriver(opened).start("t").deliver(10)

    with Ledger.open(sqlalchemy_url(place.dsn_of(roles.reader))) as seen:
        assert seen.status("orders")["records"]["delivered"] == 10
    place.refused(
        roles.reader,
        *(f"DELETE FROM {table.name}" for table in tables.metadata.sorted_tables),
        "INSERT INTO ckpt_lease VALUES ('orders', 'me', 9, 1, now())",
    )


def test_what_a_later_migration_adds_is_open_to_the_roles(ledger: tuple[Ledger, LedgerRoles], place: Place) -> None:
    _, roles = ledger
    execute(place.dsn_of(roles.owner), "CREATE TABLE ckpt_new (id int)")

    execute(place.dsn_of(roles.runtime), "INSERT INTO ckpt_new VALUES (1)")

    assert scalar(place.dsn_of(roles.reader), "SELECT id FROM ckpt_new") == 1


def test_any_name_is_quoted(place: Place) -> None:
    names = [f"{place.name} {ODD} {role}" for role in ("owner", "runtime", "reader")]
    roles = replace(roles_of(place), schema=ODD, owner=names[0], runtime=names[1], reader=names[2])

    execute(place.dsn, roles.sql, roles.sql)
    execute(place.dsn, SinkRoles(ODD, names[1], names[2], pipelines=[ODD]).sql)

    assert scalar(place.dsn, "SELECT count(*) FROM pg_roles WHERE rolname = ANY (%s)", [names]) == 3


@pytest.mark.parametrize("schema", ["public", "pg_catalog"])
def test_a_schema_that_is_everybodys_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="a schema of their own"):
        LedgerRoles(schema, "a", "b", "c")


def test_two_roles_cannot_be_one() -> None:
    with pytest.raises(ConfigError, match="three roles"):
        LedgerRoles("ckpt", "a", "b", "b")


def test_a_writer_of_no_pipeline_is_refused() -> None:
    with pytest.raises(ConfigError, match="no pipeline is named that runs as writer"):
        SinkRoles("public", "writer", "reader", ["target"])


def test_whoever_logs_in_finds_the_ledger_without_naming_its_schema(place: Place) -> None:
    roles = roles_of(place)
    execute(place.dsn, roles.sql)

    assert scalar(place.dsn_of(roles.owner), "SELECT current_schema()") == "led ger"


def test_time_and_database_user_of_an_event_come_from_the_database_alone(
    ledger: tuple[Ledger, LedgerRoles], place: Place
) -> None:
    opened, roles = ledger
    LedgerDriver(opened).start("t").deliver(10)
    event = "pipeline, at, kind, actor, detail"
    values = "'orders', timestamptz '2000-01-01Z', 'skip', 'somebody else', '{}'"

    execute(place.dsn_of(roles.runtime), f"INSERT INTO ckpt_event ({event}) VALUES ({values})")

    events = opened.events("orders")
    assert {found["database_user"] for found in events} == {roles.runtime}
    assert all(found["recorded_at"] > "2020" for found in events)
    place.refused(
        roles.runtime,
        f"INSERT INTO ckpt_event ({event}, database_user) VALUES ({values}, 'admin')",
        f"INSERT INTO ckpt_event ({event}, recorded_at) VALUES ({values}, now())",
        f"INSERT INTO ckpt_event (id, {event}) VALUES (1000000, {values})",
        "UPDATE ckpt_event SET database_user = 'admin'",
    )


def test_a_script_that_is_run_again_takes_back_what_an_older_one_granted(
    ledger: tuple[Ledger, LedgerRoles], place: Place
) -> None:
    opened, roles = ledger
    LedgerDriver(opened).start("t")
    execute(place.dsn, f'GRANT INSERT, UPDATE ON "led ger".ckpt_event TO "{roles.runtime}"')

    execute(place.dsn, roles.sql)

    place.refused(
        roles.runtime,
        "INSERT INTO ckpt_event (pipeline, at, kind, detail, database_user) VALUES ('orders', now(), 'x', '{}', 'me')",
        "UPDATE ckpt_event SET actor = 'nobody'",
    )
