"""Two pipelines with different roles share a schema's bookkeeping; neither can read, forge or fence the other's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.roles import SinkRoles
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import (
    LEDGER,
    Run,
    SinkHarness,
    StoredDeadLetter,
    all_rejected,
    content,
    ids,
    task,
)
from tests.integration.connectors.postgres.test_sink import TargetHarness
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

PASSWORD = "few-rights"
TABLES = ("ckpt_sink_fence", "ckpt_sink_receipt", "ckpt_sink_dead_letter", "ckpt_sink_replay")


class RoleHarness(TargetHarness):
    """The target, written to as a role with few rights, looked at as the owner."""

    def __init__(self, owner: str, role: str, *, create: bool = True) -> None:
        if create:
            super().__init__(owner)
        self.owner, self.role, self._sink = owner, role, {}
        self.dsn = role

    def target(self) -> list[int]:
        return [row[0] for row in execute(self.owner, "SELECT id FROM target ORDER BY id")]

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        seen = TargetHarness.__new__(TargetHarness)
        seen.dsn = self.owner
        return seen.dead_letters(context)


@dataclass
class Schema:
    """A database with two writers and a reader."""

    server: PostgresServer
    owner: str

    @property
    def name(self) -> str:
        """Return the name of the database; the names of its roles begin with it, since roles belong to the server."""
        return self.owner.rsplit("/", 1)[1]

    def roles(self, actor: str, *pipelines: str) -> SinkRoles:
        """Those of one writer."""
        return SinkRoles("public", f"{self.name}_{actor}", f"{self.name}_reader", ["target"], pipelines=pipelines)

    def dsn(self, actor: str) -> str:
        """Set a password for a role and return the role's DSN."""
        execute(self.owner, f"ALTER ROLE {self.name}_{actor} PASSWORD '{PASSWORD}'")
        return self.server.database_dsn(self.name, f"{self.name}_{actor}", PASSWORD)


@pytest.fixture
def schema(postgres_server: PostgresServer, postgres_database: str) -> Schema:
    return Schema(postgres_server, postgres_database)


@pytest.fixture
def shared(schema: Schema) -> Iterator[tuple[Schema, Run, Run]]:
    """``orders`` runs as ``ann`` and has delivered a batch, dead letters and a replay; ``invoices`` runs as ``bob``."""
    execute(schema.owner, "CREATE TABLE target (id bigint CHECK (id < 1000))")
    execute(schema.owner, schema.roles("ann", "orders").sql, schema.roles("bob", "invoices").sql)
    ann = RoleHarness(schema.owner, schema.dsn("ann"), create=False)
    bob = RoleHarness(schema.owner, schema.dsn("bob"), create=False)
    with Run(ann, 3) as orders, Run(bob, 1, pipeline="invoices") as invoices:
        orders.take_over().send(task(0), content(0, rejected=2))
        orders.sink.store_replay("dlq:1:p", Replay(()))
        invoices.take_over()
        yield schema, orders, invoices


class TestConformanceUnderFewRights(SinkConformance):
    @pytest.fixture
    def harness(self, schema: Schema) -> SinkHarness:
        """Every pipeline that the suite names, as one role."""
        harness = RoleHarness(schema.owner, "")
        execute(schema.owner, schema.roles("ann", "orders", "invoices", "other").sql)
        harness.role = harness.dsn = schema.dsn("ann")
        return harness


def test_its_own_work_passes(shared: tuple[Schema, Run, Run]) -> None:
    _, orders, invoices = shared

    assert invoices.send(task(7), content(7, rejected=1)).outcome is AttemptOutcome.DELIVERED
    assert invoices.send(task(8, instruction=Instruction.REJECT), all_rejected(8)).outcome is AttemptOutcome.REJECTED
    invoices.sink.store_replay("dlq:1:p", Replay(()))
    invoices.sink.fence(2)

    assert [receipt.key.seq for receipt in invoices.receipts()] == [7, 8]
    assert len(list(invoices.sink.dead_letters([AttemptKey(task(7).key, 1, 1)]))) == 1
    assert invoices.sink.replays(["dlq:1:p"]) == {"dlq:1:p": Replay(())}
    assert [receipt.key.seq for receipt in orders.receipts()] == [0]


def test_nothing_of_another_pipeline_is_seen(shared: tuple[Schema, Run, Run]) -> None:
    schema, _, _ = shared
    bob = schema.dsn("bob")

    for table in TABLES:
        assert execute(bob, f"SELECT DISTINCT pipeline FROM {table}") in ([], [("invoices",)])
        assert scalar(schema.dsn("reader"), f"SELECT count(*) FROM {table} WHERE pipeline = 'orders'") > 0


def test_no_receipt_letter_replay_or_fence_is_forged(shared: tuple[Schema, Run, Run]) -> None:
    schema, orders, _ = shared
    bob = schema.dsn("bob")
    before = {table: execute(schema.owner, f"SELECT * FROM {table} ORDER BY 1, 2, at") for table in TABLES}
    replay = json.dumps(Replay(()).to_json())
    key = f"'{LEDGER}', 'orders', 1, 'main', 1"
    raised = "ON CONFLICT (ledger, pipeline) DO UPDATE SET epoch = 99"
    for statement in (
        f"INSERT INTO ckpt_sink_receipt VALUES ({key}, 10, 20, 'delivered', 3, 1, 10, 10, 0, 0)",
        f"INSERT INTO ckpt_sink_fence VALUES ('{LEDGER}', 'orders', 99) {raised}",
        "INSERT INTO ckpt_sink_fence VALUES ('other', 'orders', 99)",
        "UPDATE ckpt_sink_fence SET pipeline = 'orders'",
        f"INSERT INTO ckpt_sink_dead_letter VALUES ({key}, 1, 3, 0, '', '', 'x', 'x', '', '{{}}')",
        f"INSERT INTO ckpt_sink_replay VALUES ('{LEDGER}', 'orders', 'dlq:9:p', '{replay}')",
        "DELETE FROM ckpt_sink_dead_letter",
        "DELETE FROM ckpt_sink_receipt",
        "TRUNCATE ckpt_sink_fence",
        "ALTER TABLE ckpt_sink_fence DISABLE ROW LEVEL SECURITY",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(bob, statement)
    execute(
        bob, "UPDATE ckpt_sink_fence SET epoch = 99 WHERE pipeline = 'orders'", "UPDATE ckpt_sink_receipt SET seq = 5"
    )

    assert {table: execute(schema.owner, f"SELECT * FROM {table} ORDER BY 1, 2, at") for table in TABLES} == before
    assert orders.send(task(1), content(1)).outcome is AttemptOutcome.DELIVERED


def test_a_pipeline_that_the_role_is_not_for_is_refused_with_what_to_run(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)", schema.roles("ann", "orders").sql)
    harness = RoleHarness(schema.owner, schema.dsn("ann"), create=False)

    with Run(harness, 1, pipeline="invoices") as run:
        with pytest.raises(ConfigError, match="row level security") as caught:
            run.take_over()
        assert "--pipeline" in str(caught.value)


def test_the_beginning_of_names_admits_the_pipelines_of_all_tables_of_a_declaration(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)", schema.roles("ann", "shop.*", "orders").sql)
    harness = RoleHarness(schema.owner, schema.dsn("ann"), create=False)

    for name in ("shop.public.orders", "shop.public.added_later", "orders"):
        with Run(harness, 1, pipeline=name) as run:
            assert run.take_over().send(task(0), content(0)).outcome is AttemptOutcome.DELIVERED
    for name in ("shops.public.orders", "shop", "orders.public.orders"):
        with Run(harness, 1, pipeline=name) as run, pytest.raises(ConfigError, match="row level security"):
            run.take_over()


@pytest.mark.parametrize("name", ["*.orders", "shop.*.orders", "shop.**"])
def test_a_star_inside_the_name_of_a_pipeline_is_refused(name: str, schema: Schema) -> None:
    with pytest.raises(ConfigError, match="is not the name of a pipeline") as caught:
        schema.roles("ann", name)
    assert "shop.*" in str(caught.value)


def test_the_script_takes_back_what_it_grants_no_more(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id int)", "CREATE TABLE more (id int)", "CREATE TABLE source (id int)")
    wide = replace(schema.roles("ann", "orders", "invoices"), tables=["target", "more"], upsert=True)
    execute(schema.owner, wide.sql, f"GRANT SELECT ON source TO {schema.name}_ann")
    ann = schema.dsn("ann")
    execute(
        ann, "INSERT INTO ckpt_sink_fence VALUES ('l', 'invoices', 1), ('l', 'orders', 1)", "UPDATE more SET id = 1"
    )

    execute(schema.owner, replace(wide, tables=["target"], upsert=False, pipelines=["orders"]).sql)

    assert execute(ann, "SELECT pipeline FROM ckpt_sink_fence") == [("orders",)]
    execute(ann, "INSERT INTO target VALUES (1)", "SELECT * FROM source")
    for statement in (
        "INSERT INTO more VALUES (1)",
        "UPDATE more SET id = 1",
        "SELECT * FROM more",
        "UPDATE target SET id = 1",
        "SELECT * FROM target",
        "INSERT INTO ckpt_sink_fence VALUES ('m', 'invoices', 1)",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(ann, statement)

    execute(schema.owner, replace(wide, tables=[], pipelines=[]).sql)
    for statement in ("INSERT INTO target VALUES (1)", *(f"SELECT * FROM {table}" for table in TABLES)):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(ann, statement)
    execute(ann, "SELECT * FROM source")


def test_tables_that_a_writer_made_itself_are_taken_from_it(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)")
    execute(schema.owner, schema.roles("ann", "orders").sql)
    execute(schema.owner, *(f"ALTER TABLE {table} OWNER TO {schema.name}_ann" for table in TABLES))
    ann = schema.dsn("ann")
    execute(schema.owner, "INSERT INTO ckpt_sink_fence VALUES ('l', 'invoices', 1)")
    assert scalar(ann, "SELECT count(*) FROM ckpt_sink_fence") == 1

    execute(schema.owner, schema.roles("ann", "orders").sql)

    assert scalar(ann, "SELECT count(*) FROM ckpt_sink_fence") == 0
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(ann, "ALTER TABLE ckpt_sink_fence DISABLE ROW LEVEL SECURITY")


def test_who_owns_the_tables_needs_no_script(postgres_database: str) -> None:
    harness = TargetHarness(postgres_database)
    with Run(harness, 1) as run:
        run.take_over().send(task(0), content(0, rejected=1))
        assert harness.target() == ids(0)[1:]


def test_a_long_history_is_read_by_its_index_under_the_policies(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)", schema.roles("ann", "orders").sql)
    ann = schema.dsn("ann")
    execute(
        schema.owner,
        "INSERT INTO ckpt_sink_receipt SELECT 'l', p, 1, 'main', i, i, i + 1, 'delivered', 1, 1, 1, 1, 0, 0"
        " FROM generate_series(0, 19999) AS i, unnest('{orders,invoices}'::text[]) AS p",
        "ANALYZE ckpt_sink_receipt",
    )
    plan = execute(
        ann,
        "EXPLAIN SELECT * FROM ckpt_sink_receipt WHERE ledger = 'l' AND pipeline = 'orders' AND partition = 'main'"
        " AND (generation, range_end) > (1, 19990)",
    )
    conditions = " ".join(line for (line,) in plan if "Index Cond" in line)

    assert "range_end" in conditions


@pytest.mark.parametrize("named", [(), ("invoices",)])
def test_a_writer_from_whom_bookkeeping_is_hidden_is_told_so_and_not_of_a_restored_sink(
    schema: Schema, named: tuple[str, ...]
) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)", schema.roles("ann", "orders").sql)
    if named:
        execute(schema.owner, schema.roles("eve", *named).sql)
    else:
        execute(schema.owner, f"CREATE ROLE {schema.name}_eve LOGIN")
        execute(schema.owner, f"GRANT SELECT, INSERT, UPDATE ON target, {', '.join(TABLES)} TO {schema.name}_eve")
    with Run(RoleHarness(schema.owner, schema.dsn("ann"), create=False), 3) as run:
        run.take_over().send(task(0), content(0))

    with Run(RoleHarness(schema.owner, schema.dsn("eve"), create=False), 4) as run:
        for look in (run.sink.check, run.sink.claims):
            with pytest.raises(ConfigError) as raised:
                look()
            told = str(raised.value)
            assert "row level security hides public.ckpt_sink_dead_letter, public.ckpt_sink_fence" in told
            assert f"role '{schema.name}_eve'" in told
            assert f"airflow ckpt db roles sink public --writer {schema.name}_eve --pipeline orders" in told

    execute(schema.owner, schema.roles("eve", *named, "orders").sql)
    with Run(RoleHarness(schema.owner, schema.dsn("eve"), create=False), 4) as run:
        run.sink.check()
        assert run.sink.claims().epoch == 3


def test_a_policy_of_the_owners_own_shows_bookkeeping_too(schema: Schema) -> None:
    execute(schema.owner, "CREATE TABLE target (id bigint)", schema.roles("ann", "orders").sql)
    execute(schema.owner, f"CREATE ROLE {schema.name}_eve LOGIN")
    for table in TABLES:
        execute(schema.owner, f"GRANT SELECT, INSERT, UPDATE ON target, {table} TO {schema.name}_eve")
        execute(schema.owner, f"CREATE POLICY own ON {table} USING (ledger <> '{{}}')")

    with Run(RoleHarness(schema.owner, schema.dsn("eve"), create=False), 4) as run:
        run.sink.check()
        assert run.sink.claims().epoch == 0
