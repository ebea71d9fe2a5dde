"""If a target stores another number of rows than it is sent, the batch fails with both numbers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError, ErrorAction
from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.integration.connectors.postgres.test_writer import Lane, delivered, error_of
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

_FUNCTION = "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$"
_TRIGGER = "CREATE TRIGGER meddle {} ON target FOR EACH ROW EXECUTE FUNCTION meddle()"
ALTERING = {
    "a trigger that swallows rows": ("BEFORE INSERT", "IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW;", 3),
    "a trigger that adds rows": (
        "BEFORE INSERT",
        "IF NEW.id < 100 THEN INSERT INTO target VALUES (NEW.id + 100, 'added'); END IF; RETURN NEW;",
        10,
    ),
    "a trigger that takes rows out again": (
        "AFTER INSERT",
        "IF NEW.id > 3 THEN DELETE FROM target WHERE id = NEW.id; END IF; RETURN NULL;",
        3,
    ),
    "a trigger that waits for the commit": (
        "deferred",
        "IF NEW.id > 3 THEN DELETE FROM target WHERE id = NEW.id; END IF; RETURN NULL;",
        3,
    ),
}
UPSERT = {"mode": "upsert", "key": ["id"]}
WAYS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "COPY": ("id int, v text", {}, pa.array([1, 2, 3, 4, 5], pa.int32())),
    "INSERT with a cast": ("id int, v text", {}, pa.array(["1", "2", "3", "4", "5"])),
    "upsert": ("id int PRIMARY KEY, v text", UPSERT, pa.array([1, 2, 3, 4, 5], pa.int32())),
    "row by row": ("id int CHECK (id > 0), v text", {}, pa.array([1, 2, 3, 4, 5, -7], pa.int32())),
    "upsert row by row": ("id int PRIMARY KEY CHECK (id > 0), v text", UPSERT, pa.array([1, 2, 3, 4, 5, -7])),
    "into partitions": ("id int, v text) PARTITION BY HASH (id", {}, pa.array([1, 2, 3, 4, 5], pa.int32())),
}


def make(dsn: str, columns: str, trigger: str | None = None, body: str = "") -> str:
    execute(dsn, f"CREATE TABLE target ({columns})")
    if "PARTITION BY" in columns:
        for part in (0, 1):
            bounds = f"FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
            execute(dsn, f"CREATE TABLE part_{part} PARTITION OF target {bounds}")
    if trigger == "deferred":
        made = "CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON target DEFERRABLE INITIALLY DEFERRED"
        execute(dsn, _FUNCTION.format(body), f"{made} FOR EACH ROW EXECUTE FUNCTION meddle()")
    elif trigger:
        execute(dsn, _FUNCTION.format(body), _TRIGGER.format(trigger))
    return dsn


def values(ids: Any) -> dict[str, Any]:
    return {"id": ids, "v": ["x"] * len(ids)}


@pytest.mark.parametrize(("columns", "sink", "ids"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("trigger", "body", "stored"), ALTERING.values(), ids=ALTERING)
class TestTrigger:
    def test_the_batch_fails_with_both_numbers(
        self, postgres_database: str, columns: str, sink: dict[str, Any], ids: Any, trigger: str, body: str, stored: int
    ) -> None:
        with Lane(make(postgres_database, columns, trigger, body), sink=sink) as lane:
            error = error_of(lane.send(**values(ids)))

            assert f"5 rows were sent, and {stored} were added" in error.message
            assert "sink.rows_may_differ" in error.message
            assert lane.pipeline.policy.action(error) is ErrorAction.HALT
            assert (lane.rows(), lane.dead_letters(), lane.receipts) == ([], [], [])

            execute(lane.dsn, "DROP TRIGGER meddle ON target")
            assert delivered(lane.send(**values(ids)))
            assert len(lane.rows()) == 5

    def test_it_is_delivered_where_the_pipeline_says_so_and_the_receipt_has_both_numbers(
        self, postgres_database: str, columns: str, sink: dict[str, Any], ids: Any, trigger: str, body: str, stored: int
    ) -> None:
        lax = sink | {"rows_may_differ": True}
        with Lane(make(postgres_database, columns, trigger, body), sink=lax) as lane:
            assert delivered(lane.send(**values(ids)))

            bad = len(ids) - 5
            assert lane.receipts[0].counts == Counts(len(ids), 5, 0, bad)
            assert scalar(lane.dsn, "SELECT added FROM ckpt_sink_receipt") == stored
            assert len(lane.rows()) == stored


@pytest.mark.parametrize(("columns", "sink", "ids"), WAYS.values(), ids=WAYS)
def test_a_trigger_that_only_changes_rows_or_writes_elsewhere_is_no_hindrance(
    postgres_database: str, columns: str, sink: dict[str, Any], ids: Any
) -> None:
    execute(postgres_database, "CREATE TABLE log (id int)")
    body = "INSERT INTO log VALUES (NEW.id), (NEW.id); NEW.v := 'changed'; RETURN NEW;"
    with Lane(make(postgres_database, columns, "BEFORE INSERT", body), sink=sink) as lane:
        for _ in range(2 if sink else 1):
            assert delivered(lane.send(**values(ids)))

        assert len(lane.rows()) == 5


def test_rows_that_a_trigger_puts_into_a_child_of_the_target_are_in_it(postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE target (id int, v text)", "CREATE TABLE child () INHERITS (target)")
    body = "INSERT INTO child VALUES (NEW.*); RETURN NULL;"
    execute(postgres_database, _FUNCTION.format(body), _TRIGGER.format("BEFORE INSERT"))
    with Lane(postgres_database) as lane:
        assert delivered(lane.send(**values([1, 2, 3])))
        assert len(lane.rows()) == 3


@pytest.mark.parametrize("ids", [pa.array([1, 2, 12], pa.int32()), pa.array(["1", "2", "12"])])
@pytest.mark.parametrize("lax", [False, True])
def test_rows_in_a_child_that_a_trigger_makes_for_them_are_in_the_target(
    postgres_database: str, ids: Any, lax: bool
) -> None:
    body = (
        "EXECUTE format('CREATE TABLE IF NOT EXISTS child_%s () INHERITS (target)', NEW.id / 10);"
        " EXECUTE format('INSERT INTO child_%s SELECT ($1).*', NEW.id / 10) USING NEW; RETURN NULL;"
    )
    make(postgres_database, "id int, v text", "BEFORE INSERT", body)
    with Lane(postgres_database, sink={"rows_may_differ": lax}) as lane:
        assert delivered(lane.send(**values(ids)))
        assert delivered(lane.send(**values(ids)))
        assert len(lane.rows()) == 6
    assert execute(postgres_database, "SELECT * FROM ONLY target") == []
    assert scalar(postgres_database, "SELECT count(*) FROM child_1") == 2
    assert scalar(postgres_database, "SELECT min(coalesce(added, 3)) FROM ckpt_sink_receipt") == 3


def test_a_child_that_a_trigger_makes_does_not_hide_rows_that_it_swallows(postgres_database: str) -> None:
    body = (
        "CREATE TABLE IF NOT EXISTS child () INHERITS (target);"
        " IF NEW.id <> 2 THEN INSERT INTO child VALUES (NEW.*); END IF; RETURN NULL;"
    )
    make(postgres_database, "id int, v text", "BEFORE INSERT", body)
    with Lane(postgres_database) as lane:
        assert "3 rows were sent, and 2 were added" in error_of(lane.send(**values([1, 2, 3]))).message


def test_rows_that_a_trigger_puts_into_another_table_are_not(postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE target (id int, v text)", "CREATE TABLE elsewhere (LIKE target)")
    body = "INSERT INTO elsewhere VALUES (NEW.*); RETURN NULL;"
    execute(postgres_database, _FUNCTION.format(body), _TRIGGER.format("BEFORE INSERT"))
    with Lane(postgres_database) as lane:
        assert "3 rows were sent, and 0 were added" in error_of(lane.send(**values([1, 2, 3]))).message
    assert execute(postgres_database, "SELECT * FROM elsewhere") == []


class TestUpsert:
    def test_rows_that_replace_and_repeat_each_other_are_counted_once_a_key(self, postgres_database: str) -> None:
        with Lane(make(postgres_database, "id int PRIMARY KEY, v text CHECK (v <> 'bad')"), sink=UPSERT) as lane:
            assert delivered(lane.send(id=[1, 1, 2], v=["a", "b", "c"]))
            assert delivered(lane.send(id=[1, 2, 2, 3], v=["d", "e", "f", "g"]))
            assert delivered(lane.send(id=[1, 4, 4, 4], v=["bad", "h", "bad", "i"]))

            assert lane.rows() == [(1, "d"), (2, "f"), (3, "g"), (4, "i")]

    def test_a_key_alone_that_is_there_already_is_counted(self, postgres_database: str) -> None:
        with Lane(make(postgres_database, "id int PRIMARY KEY"), sink=UPSERT) as lane:
            assert delivered(lane.send(id=[1, 2]))
            assert delivered(lane.send(id=[2, 2, 3]))

            assert lane.rows() == [(1,), (2,), (3,)]

    def test_an_update_that_a_trigger_swallows_is_seen(self, postgres_database: str) -> None:
        body = "IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW;"
        with Lane(make(postgres_database, "id int PRIMARY KEY, v text", "BEFORE UPDATE", body), sink=UPSERT) as lane:
            assert delivered(lane.send(id=[1, 2], v=["a", "b"]))

            error = error_of(lane.send(id=[1, 2], v=["A", "B"]))

            assert "2 rows were sent, and 1 were added" in error.message
            assert lane.rows() == [(1, "a"), (2, "b")]


class TestRules:
    @pytest.mark.parametrize("what", ["INSTEAD NOTHING", "ALSO INSERT INTO elsewhere VALUES (NEW.id)"])
    def test_a_target_with_rules_is_refused_by_their_names(self, postgres_database: str, what: str) -> None:
        execute(
            postgres_database,
            "CREATE TABLE target (id int)",
            "CREATE TABLE elsewhere (id int)",
            f"CREATE RULE detour AS ON INSERT TO target WHERE NEW.id > 1 DO {what}",
        )
        with (
            pytest.raises(ConfigError, match=r"target public.target has rules \(detour\)") as caught,
            Lane(postgres_database),
        ):
            pass
        assert "DROP RULE" in str(caught.value)

    @pytest.mark.parametrize("ids", [pa.array([1, 2, 3], pa.int32()), pa.array(["1", "2", "3"])])
    def test_where_that_is_meant_rows_go_the_rules_way_whatever_their_types(
        self, postgres_database: str, ids: Any
    ) -> None:
        execute(
            postgres_database,
            "CREATE TABLE target (id int)",
            "CREATE RULE detour AS ON INSERT TO target WHERE NEW.id > 1 DO INSTEAD NOTHING",
        )
        with Lane(postgres_database, sink={"rows_may_differ": True}) as lane:
            assert delivered(lane.send(id=ids))

            assert lane.rows() == [(1,)]
            assert scalar(lane.dsn, "SELECT (delivered, added)::text FROM ckpt_sink_receipt") == "(3,1)"

    def test_a_rule_that_rows_never_meet_is_no_hindrance(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            "CREATE TABLE target (id int)",
            "CREATE RULE fixed AS ON UPDATE TO target DO INSTEAD NOTHING",
            "CREATE RULE kept AS ON DELETE TO target DO INSTEAD NOTHING",
        )
        with Lane(postgres_database) as lane:
            assert delivered(lane.send(id=[1, 2]))

    def test_an_upsert_never_goes_by_rules(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            "CREATE TABLE target (id int PRIMARY KEY)",
            "CREATE RULE detour AS ON UPDATE TO target DO INSTEAD NOTHING",
        )
        with (
            pytest.raises(ConfigError, match="use mode: append"),
            Lane(postgres_database, sink=UPSERT | {"rows_may_differ": True}),
        ):
            pass


@pytest.mark.parametrize("ids", [pa.array([1, 2], pa.int32()), pa.array(["1", "2"])])
def test_a_policy_of_the_target_lets_rows_in_or_fails_the_batch(
    postgres_server: PostgresServer, postgres_database: str, ids: Any
) -> None:
    database = postgres_database.rsplit("/", 1)[1]
    role = f"{database}_policed"
    execute(
        postgres_database,
        f"CREATE ROLE {role} LOGIN PASSWORD 'p'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {role}",
        "CREATE TABLE target (id int)",
        f"GRANT INSERT ON target TO {role}",
        "ALTER TABLE target ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY small ON target FOR INSERT TO {role} WITH CHECK (id < 3)",
    )
    with Lane(postgres_server.database_dsn(database, role, "p")) as lane:
        assert delivered(lane.send(id=ids))
        error = error_of(lane.send(id=pa.array([2, 3], pa.int32())))

        assert error.sqlstate == "42501"
        assert execute(postgres_database, "SELECT id FROM target ORDER BY id") == [(1,), (2,)]


def test_a_server_that_does_not_count_is_refused(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (id int)",
        f"ALTER DATABASE {postgres_database.rsplit('/', 1)[1]} SET track_counts = off",
    )
    sink = PostgresSink(pipeline(), connection(postgres_database), SinkContext("l", "orders"))
    with closing(sink), pytest.raises(ConfigError, match="track_counts = off"):
        sink.check()


def test_bookkeeping_of_an_earlier_version_gets_the_column(postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE target (id int)")
    with Lane(postgres_database):
        pass
    execute(postgres_database, "ALTER TABLE ckpt_sink_receipt DROP COLUMN added")
    with Lane(postgres_database, sink={"rows_may_differ": True}) as lane:
        assert delivered(lane.send(id=[1]))
    assert scalar(postgres_database, "SELECT added FROM ckpt_sink_receipt") == 1
