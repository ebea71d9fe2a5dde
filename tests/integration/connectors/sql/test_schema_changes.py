"""Changes of a table's columns in MariaDB and SQLite take effect once, behind the fence, whatever is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.sql import mysql_locks
from airflow_provider_ckpt.connectors.sql.fence import owner_digest
from airflow_provider_ckpt.connectors.sql.mysql import MySqlDialect
from airflow_provider_ckpt.connectors.sql.schema_changes import TargetColumns
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.connectors.sql.sqlite import SqliteDialect
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, FencedError, SinkError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion, VersionColumn
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.sink_harness import Run, content, task
from tests.integration.connectors.interruptions import Killed, Step, after, before, kill, once
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, pipeline
from tests.integration.connectors.sql.test_sink import TargetHarness

NOTE = TargetStep(StepKind.ADD, "note", "text", "string")
ALTER = {"mariadb": Step(MySqlDialect, "alter_columns"), "sqlite": Step(SqliteDialect, "alter_columns")}


def version(number: int, *columns: str, partition: str = "public.orders") -> SchemaVersion:
    """A schema version.

    :param number: its number
    :param columns: names of its columns
    :param partition: id of the source partition
    """
    found = tuple(VersionColumn(name, place, "text") for place, name in enumerate(columns or ("id",), 1))
    return SchemaVersion(number, partition, 1, number, found, ("a decision",))


def rename(old: str, new: str) -> TargetStep:
    return TargetStep(StepKind.RENAME, old, new)


def widen(name: str, kind: str, spark: str) -> TargetStep:
    return TargetStep(StepKind.WIDEN, name, kind, spark)


class Changing:
    """Runs of a pipeline whose target is a table of a database.

    :param database: the database
    :param monkeypatch: interrupts runs
    """

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database, self.monkeypatch = database, monkeypatch
        self.harness = TargetHarness(database)
        self.runs: list[Run] = []

    @property
    def alter(self) -> Step:
        """The function that changes the columns."""
        return ALTER["mariadb" if isinstance(self.database, MariaDb) else "sqlite"]

    def opened(self, epoch: int) -> Run:
        """A run that has not raised the fence yet."""
        self.runs.append(Run(self.harness, epoch))
        return self.runs[-1]

    def run(self, epoch: int = 1) -> Run:
        """A run that has raised the fence."""
        return self.opened(epoch).take_over()

    def columns(self) -> dict[str, tuple[str, bool]]:
        """Type of each column, and whether it may be null, by name, in the table's order."""
        if isinstance(self.database, MariaDb):
            rows = self.database.execute("SHOW COLUMNS FROM target")
            return {row[0]: (row[1], row[2] == "YES") for row in rows}
        return {row[1]: (row[2], not row[3]) for row in self.database.execute("PRAGMA table_info(target)")}

    def begun(self) -> list[str]:
        """Names of the changes that have begun and have no receipt."""
        rows = self.database.execute("SELECT `partition` FROM ckpt_sink_replay WHERE `partition` LIKE 'altering:%'")
        return [str(name) for (name,) in rows]

    def counted(self) -> list[None]:
        """A list that gets an element with each statement that changes columns from here on."""
        made: list[None] = []
        self.monkeypatch.setattr(*self.alter, after(self.alter.real, lambda: made.append(None)))
        return made

    def killed(self, run: Run, dies: Step, steps: list[TargetStep], *, done: bool = False) -> None:
        """A run that is killed before or after a step of a change to version 2; its sessions end.

        :param run: the run
        :param dies: the step
        :param steps: the changes
        :param done: whether it dies after the step
        """
        with self.monkeypatch.context() as patch:
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                apply(run, version(2), steps)
        run.sink.close()

    def close(self) -> None:
        for run in self.runs:
            run.__exit__()


class OnMariaDb(Changing):
    """Runs of a pipeline whose target is a table of MariaDB."""

    database: MariaDb


def apply(run: Run, schema: SchemaVersion, steps: list[TargetStep]) -> None:
    """Apply a schema version."""
    assert isinstance(run.sink, SqlSink)
    run.sink.apply_schema_version(run.context.epoch, schema, steps)


def numbers(run: Run) -> list[int]:
    """Numbers of the schema versions that have a receipt."""
    assert isinstance(run.sink, SqlSink)
    return sorted(found.number for found in run.sink.schema_versions())


def noted(seq: int, name: str = "note", values: Any = None) -> Any:
    """A batch whose rows have another column."""
    whole = content(seq)
    array = pa.array(["n"] * 10) if values is None else values
    return replace(whole, rows=whole.rows.append_column(name, array))


@pytest.fixture
def changing(database: Database, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs on MariaDB and on SQLite."""
    found = Changing(database, monkeypatch)
    yield found
    found.close()


@pytest.fixture
def on_mariadb(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs on MariaDB."""
    found = OnMariaDb(mariadb, monkeypatch)
    yield found
    found.close()


@pytest.fixture
def on_sqlite(sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs on SQLite."""
    found = Changing(sqlite, monkeypatch)
    yield found
    found.close()


class TestNewColumn:
    def test_it_is_null_in_rows_before_and_has_its_values_after(self, changing: Changing) -> None:
        run = changing.run()
        apply(run, version(1), [])
        run.send(task(0), content(0))

        apply(run, version(2), [NOTE])
        writer = changing.harness.writer(run.context)
        outcome = writer.deliver(task(1), noted(1))
        writer.close()

        assert isinstance(outcome, Outcome)
        assert outcome.outcome is AttemptOutcome.DELIVERED
        rows = changing.database.execute("SELECT note, count(*) FROM target GROUP BY note ORDER BY note")
        assert rows == [(None, 10), ("n", 10)]
        assert (numbers(run), changing.begun()) == ([1, 2], [])
        assert isinstance(run.sink, SqlSink)
        assert version(2) in run.sink.schema_versions()

    @pytest.mark.parametrize(
        ("kind", "spark", "value", "held"),
        [
            ("boolean", "boolean", pa.scalar(True), ("tinyint(1)", "BOOLEAN")),
            ("smallint", "smallint", pa.scalar(-3, pa.int16()), ("smallint(6)", "INTEGER")),
            ("integer", "int", pa.scalar(1 << 20, pa.int32()), ("int(11)", "INTEGER")),
            ("bigint", "bigint", pa.scalar(-(1 << 63)), ("bigint(20)", "INTEGER")),
            ("real", "float", pa.scalar(0.5, pa.float32()), ("float", "REAL")),
            ("double precision", "double", pa.scalar(1e300), ("double", "DOUBLE")),
            ("text", "string", pa.scalar("long " * 20_000), ("longtext", "TEXT")),
            ("character varying(8)", "string", pa.scalar("ä" * 8), ("varchar(8)", "VARCHAR(8)")),
            ("character varying(5000)", "string", pa.scalar("ä" * 5000), ("longtext", "VARCHAR(5000)")),
            ("numeric(12,4)", "string", pa.scalar("-12345678.1234"), ("decimal(12,4)", "DECIMAL(12,4)")),
            ("numeric(20,2)", "string", pa.scalar("123456789012345678.25"), ("decimal(20,2)", "TEXT")),
            ("numeric", "string", pa.scalar("1" * 90), ("longtext", "TEXT")),
            ("numeric(3,5)", "string", pa.scalar("0.00123"), ("longtext", "TEXT")),
            ("jsonb", "string", pa.scalar('{"a": 1}'), ("longtext", "TEXT")),
            ("bytea", "binary", pa.scalar(b"\xff\x00"), ("longblob", "BLOB")),
            ("date", "date", pa.scalar(7, pa.date32()), ("date", "DATE")),
            ("timestamp without time zone", "timestamp_ntz", pa.scalar(123_456, pa.timestamp("us")),
             ("datetime(6)", "DATETIME")),
            ("timestamp with time zone", "timestamp", pa.scalar(-(1 << 50), pa.timestamp("us", "UTC")),
             ("datetime(6)", "DATETIME")),
        ],
    )  # fmt: skip
    def test_every_type_of_a_source_can_be_added(
        self, changing: Changing, kind: str, spark: str, value: pa.Scalar, held: tuple[str, str]
    ) -> None:
        run = changing.run()

        apply(run, version(1), [TargetStep(StepKind.ADD, "new", kind, spark)])
        outcome = run.send(task(0), noted(0, "new", pa.array([value.as_py()] * 10, value.type)))

        assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {})
        assert changing.columns()["new"] == (held[isinstance(changing.database, Sqlite)], True)
        assert changing.database.execute("SELECT count(new) FROM target") == [(10,)]

    def test_a_table_that_has_it_already_keeps_it_as_it_is(self, changing: Changing) -> None:
        changing.database.execute("ALTER TABLE target ADD note longtext")
        run, made = changing.run(), changing.counted()

        apply(run, version(1), [NOTE])

        assert (list(changing.columns()), numbers(run), made) == (["id", "note"], [1], [])

    def test_a_name_that_differs_only_in_case_is_refused(self, changing: Changing) -> None:
        changing.database.execute("ALTER TABLE target ADD Note varchar(3)")
        run = changing.run()

        with pytest.raises(ConfigError, match="cannot get the column note, since its column Note differs only in case"):
            apply(run, version(1), [NOTE])

        assert (list(changing.columns()), numbers(run), changing.begun()) == (["id", "Note"], [], [])

    def test_a_table_of_another_character_set_gets_a_column_that_takes_every_text(self, on_mariadb: OnMariaDb) -> None:
        on_mariadb.database.execute("ALTER TABLE target CHARACTER SET latin1")
        run = on_mariadb.run()

        apply(run, version(1), [NOTE])

        assert run.send(task(0), noted(0, values=pa.array(["❄"] * 10))).dead_letters == {}


class TestRename:
    def test_a_column_takes_its_values_along_even_if_its_name_is_given_again(self, changing: Changing) -> None:
        changing.database.execute("ALTER TABLE target ADD a int", "INSERT INTO target (id, a) VALUES (1, 7)")
        run = changing.run()

        apply(run, version(1), [rename("a", "b"), TargetStep(StepKind.ADD, "a", "integer", "int")])

        assert changing.database.execute("SELECT id, b, a FROM target") == [(1, 7, None)]
        assert list(changing.columns()) == ["id", "b", "a"]

    def test_a_new_name_that_the_table_has_already_is_refused(self, changing: Changing) -> None:
        changing.database.execute("ALTER TABLE target ADD a int", "ALTER TABLE target ADD b int")
        run = changing.run()

        with pytest.raises(ConfigError, match=r"has both a and b, so that a cannot be renamed"):
            apply(run, version(1), [rename("a", "b")])

        assert (list(changing.columns()), numbers(run)) == (["id", "a", "b"], [])

    def test_names_with_quotes_and_percents(self, changing: Changing) -> None:
        odd = 'a "b" `c` %s 50%'
        changing.database.execute("ALTER TABLE target ADD a int NOT NULL DEFAULT 7")
        run = changing.run()

        apply(run, version(1), [rename("a", odd), TargetStep(StepKind.ADD, "%d", "integer", "int")])
        if isinstance(changing.database, MariaDb):
            apply(run, version(2), [TargetStep(StepKind.ALLOW_NULL, odd), widen(odd, "bigint", "bigint")])
            assert changing.columns()[odd] == ("bigint(20)", True)

        assert list(changing.columns()) == ["id", odd, "%d"]


class TestWiderType:
    @pytest.mark.parametrize(
        ("column", "step", "became"),
        [
            ("smallint", widen("a", "integer", "int"), "int(11)"),
            ("int", widen("a", "bigint", "bigint"), "bigint(20)"),
            ("int unsigned", widen("a", "bigint", "bigint"), "bigint(20)"),
            ("float", widen("a", "double precision", "double"), "double"),
            ("varchar(4)", widen("a", "character varying(9)", "string"), "varchar(9)"),
            ("varchar(4)", widen("a", "text", "string"), "longtext"),
            ("text", widen("a", "text", "string"), "longtext"),
            ("decimal(6,2)", widen("a", "numeric(12,4)", "string"), "decimal(12,4)"),
            ("decimal(20,2)", widen("a", "numeric(22,4)", "string"), "decimal(22,4)"),
            ("date", widen("a", "timestamp without time zone", "timestamp_ntz"), "datetime(6)"),
            ("datetime(3)", widen("a", "timestamp without time zone", "timestamp_ntz"), "datetime(6)"),
        ],
    )
    def test_mariadb_gets_it_without_loss(
        self, on_mariadb: OnMariaDb, column: str, step: TargetStep, became: str
    ) -> None:
        values = {"varchar(4)": "'text'", "text": "'text'", "date": "'2024-01-01'", "datetime(3)": "'2024-01-01'"}
        value = values.get(column, "12")
        on_mariadb.database.execute(
            f"ALTER TABLE target ADD a {column}", f"INSERT INTO target (id, a) VALUES (1, {value})"
        )
        run = on_mariadb.run()

        apply(run, version(1), [step])

        assert on_mariadb.columns()["a"] == (became, True)
        assert on_mariadb.database.execute(f"SELECT count(*) FROM target WHERE a = {value}") == [(1,)]

    @pytest.mark.parametrize(
        ("column", "step"),
        [
            ("bigint", widen("a", "integer", "int")),
            ("decimal(30,4)", widen("a", "bigint", "bigint")),
            ("double", widen("a", "real", "float")),
            ("double", widen("a", "integer", "int")),
            ("varchar(20)", widen("a", "character varying(9)", "string")),
            ("varchar(200)", widen("a", "bigint", "bigint")),
            ("longtext", widen("a", "text", "string")),
            ("decimal(20,6)", widen("a", "numeric(12,4)", "string")),
            ("datetime(6)", widen("a", "date", "date")),
            ("tinyint(1)", widen("a", "boolean", "boolean")),
            ("longblob", widen("a", "bytea", "binary")),
        ],
    )
    def test_a_column_that_stores_all_values_is_left_as_it_is(
        self, on_mariadb: OnMariaDb, column: str, step: TargetStep
    ) -> None:
        on_mariadb.database.execute(f"ALTER TABLE target ADD a {column}")
        run, made = on_mariadb.run(), on_mariadb.counted()

        apply(run, version(1), [step])

        assert (numbers(run), made) == ([1], [])

    @pytest.mark.parametrize(
        ("column", "step", "wanted"),
        [
            ("bigint unsigned", widen("a", "bigint", "bigint"), "bigint"),
            ("decimal(10,4)", widen("a", "numeric(12,2)", "string"), "decimal(12,2)"),
            ("int", widen("a", "text", "string"), "longtext"),
            ("time", widen("a", "text", "string"), "longtext"),
            ("double", widen("a", "bigint", "bigint"), "bigint"),
            ("varchar(2000)", widen("a", "bytea", "binary"), "longblob"),
            ("tinytext", widen("a", "character varying(100)", "string"), r"varchar\(100\)"),
        ],
    )
    def test_a_type_that_would_lose_values_is_refused_with_the_column_and_the_remedy(
        self, on_mariadb: OnMariaDb, column: str, step: TargetStep, wanted: str
    ) -> None:
        on_mariadb.database.execute(f"ALTER TABLE target ADD a {column}")
        run = on_mariadb.run()
        columns = on_mariadb.columns()

        with pytest.raises(ConfigError, match=r"column a of target .* without loss") as refusal:
            apply(run, version(1), [NOTE, step])

        assert refusal.value.hint is not None
        assert wanted.replace("\\", "") in refusal.value.hint
        assert (on_mariadb.columns(), numbers(run), on_mariadb.begun()) == (columns, [], [])

    def test_mariadb_keeps_the_rest_of_the_definition(self, on_mariadb: OnMariaDb) -> None:
        on_mariadb.database.execute(
            "ALTER TABLE target ADD a varchar(4) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT 'x'"
            " COMMENT 'it''s 100% `a`' CHECK (a <> 'y')",
            "ALTER TABLE target ADD b int NOT NULL DEFAULT 5 COMMENT ' NOT NULL'",
        )
        run = on_mariadb.run()

        apply(
            run,
            version(1),
            [
                widen("a", "character varying(9)", "string"),
                TargetStep(StepKind.ALLOW_NULL, "b"),
                NOTE,
                rename("b", "c"),
            ],
        )

        [(_, shown)] = on_mariadb.database.execute("SHOW CREATE TABLE target")
        assert (
            "`a` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT 'x' COMMENT 'it''s 100% `a`' CHECK"
            in shown
        )
        assert "`c` int(11) DEFAULT 5 COMMENT ' NOT NULL'" in shown
        assert list(on_mariadb.columns()) == ["id", "a", "c", "note"]

    def test_sqlite_stores_wider_numbers_without_a_change(self, on_sqlite: Changing) -> None:
        on_sqlite.database.execute(
            "ALTER TABLE target ADD a int", "ALTER TABLE target ADD b real", "ALTER TABLE target ADD c TEXT"
        )
        run, made = on_sqlite.run(), on_sqlite.counted()

        apply(
            run,
            version(1),
            [widen("a", "bigint", "bigint"), widen("b", "double precision", "double"), widen("c", "text", "string")],
        )

        assert (numbers(run), made) == ([1], [])

    @pytest.mark.parametrize(
        ("column", "step", "reason"),
        [
            ("varchar(4)", widen("a", "text", "string"), r"is varchar\(4\) and has to become TEXT"),
            ("DECIMAL(6,2)", widen("a", "numeric(12,4)", "string"), r"has to become DECIMAL\(12,4\)"),
            ("date", widen("a", "timestamp without time zone", "timestamp_ntz"), "has to become DATETIME"),
            ("int NOT NULL DEFAULT 1", TargetStep(StepKind.ALLOW_NULL, "a"), "has to lose its NOT NULL"),
        ],
    )
    def test_sqlite_refuses_what_it_cannot_change_with_the_column_and_the_remedy(
        self, on_sqlite: Changing, column: str, step: TargetStep, reason: str
    ) -> None:
        on_sqlite.database.execute(f"ALTER TABLE target ADD a {column}")
        run = on_sqlite.run()
        columns = on_sqlite.columns()

        with pytest.raises(ConfigError, match=f"column a .*{reason}") as refusal:
            apply(run, version(1), [NOTE, step])

        assert "Create the table anew with this column" in str(refusal.value.hint)
        assert (on_sqlite.columns(), numbers(run)) == (columns, [])


class TestDroppedNotNull:
    def test_mariadb_drops_it(self, on_mariadb: OnMariaDb) -> None:
        on_mariadb.database.execute("ALTER TABLE target ADD a int NOT NULL", "ALTER TABLE target ADD b int")
        run = on_mariadb.run()

        apply(run, version(1), [TargetStep(StepKind.ALLOW_NULL, name) for name in ("a", "b", "absent")])

        assert on_mariadb.columns() == {"id": ("bigint(20)", True), "a": ("int(11)", True), "b": ("int(11)", True)}


class TestOnce:
    def test_a_version_is_applied_once(self, changing: Changing) -> None:
        run = changing.run()
        apply(run, version(2), [NOTE])

        with pytest.raises(SinkError, match="schema version 2 has a receipt"):
            apply(run, version(2), [TargetStep(StepKind.ADD, "other", "text", "string")])

        apply(run, version(2, partition="public.others"), [])
        assert (list(changing.columns()), numbers(run)) == (["id", "note"], [2, 2])

    @pytest.mark.parametrize("done", [False, True])
    def test_a_change_whose_process_was_killed_at_the_statement_is_made_once(
        self, changing: Changing, done: bool
    ) -> None:
        first, made = changing.run(), changing.counted()
        changing.killed(first, changing.alter, [NOTE], done=done)

        second = changing.run(2)

        if isinstance(changing.database, Sqlite):
            assert (list(changing.columns()), numbers(second)) == (["id"], [])
            apply(second, version(2), [NOTE])
        assert (list(changing.columns()), numbers(second), changing.begun()) == (["id", "note"], [2], [])
        assert len(made) == 1 + (done and isinstance(changing.database, Sqlite))
        assert second.send(task(0), noted(0)).outcome is AttemptOutcome.DELIVERED

    @pytest.mark.parametrize("done", [False, True])
    def test_a_change_whose_process_was_killed_at_the_receipt_is_completed(
        self, on_mariadb: OnMariaDb, done: bool
    ) -> None:
        on_mariadb.database.execute("ALTER TABLE target ADD a int")
        steps = [rename("a", "b"), TargetStep(StepKind.ADD, "a", "integer", "int")]
        first, made = on_mariadb.run(), on_mariadb.counted()
        on_mariadb.killed(first, Step(TargetColumns, "_store_receipt"), steps, done=done)
        assert len(on_mariadb.begun()) == 1, "the transaction of the receipt was not committed"

        second = on_mariadb.run(2)

        assert (list(on_mariadb.columns()), numbers(second), on_mariadb.begun()) == (["id", "b", "a"], [2], [])
        assert len(made) == 1

    def test_an_answer_that_is_lost_after_the_statement_leaves_the_change_to_the_next_run(
        self, on_mariadb: OnMariaDb
    ) -> None:
        run, made = on_mariadb.run(), on_mariadb.counted()
        alter, lock = on_mariadb.alter, f"ckpt:{owner_digest(run.context)}:columns"

        def lose() -> None:
            [(session,)] = on_mariadb.database.execute(f"SELECT IS_USED_LOCK('{lock}')")
            on_mariadb.database.execute(f"KILL {session}")

        with on_mariadb.monkeypatch.context() as patch:
            patch.setattr(*alter, after(alter.real, lose))
            with pytest.raises(SinkError) as lost:
                apply(run, version(2), [NOTE])

        assert lost.value.recoverable
        assert (numbers(run), len(on_mariadb.begun())) == ([], 1)
        second = on_mariadb.run(2)
        assert (numbers(second), on_mariadb.begun(), len(made)) == ([2], [], 1)

    def test_a_statement_that_the_server_refuses_has_not_begun(self, on_mariadb: OnMariaDb) -> None:
        on_mariadb.monkeypatch.setattr(mysql_locks, "DDL_WAIT", 1)
        run = on_mariadb.run()
        with on_mariadb.database.server.open(on_mariadb.database.name) as reader, reader.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM target")
            with pytest.raises(SinkError, match="Lock wait timeout") as refused:
                apply(run, version(2), [NOTE])

        assert refused.value.recoverable
        assert (list(on_mariadb.columns()), numbers(run), on_mariadb.begun()) == (["id"], [], [])
        apply(run, version(2), [NOTE])
        assert numbers(run) == [2]

    def test_columns_that_others_changed_while_a_change_had_no_receipt_are_reported(
        self, on_mariadb: OnMariaDb
    ) -> None:
        on_mariadb.database.execute("ALTER TABLE target ADD a int")
        on_mariadb.killed(on_mariadb.run(), on_mariadb.alter, [rename("a", "b")])
        on_mariadb.database.execute("ALTER TABLE target RENAME COLUMN a TO c")

        with pytest.raises(ConfigError, match=r"a, b of target .* neither as they were before .* schema version 2"):
            on_mariadb.run(2)

        on_mariadb.database.execute("ALTER TABLE target RENAME COLUMN c TO b")
        assert numbers(on_mariadb.run(3)) == [2]

    def test_no_change_begins_beside_one_without_a_receipt(self, on_mariadb: OnMariaDb) -> None:
        run = on_mariadb.run()
        on_mariadb.killed(run, on_mariadb.alter, [NOTE])

        with pytest.raises(SinkError, match="has begun and has no receipt") as refused:
            apply(run, version(2), [TargetStep(StepKind.ADD, "other", "text", "string")])

        assert refused.value.recoverable
        assert list(on_mariadb.columns()) == ["id"]

    @pytest.mark.parametrize("dies", [False, True])
    def test_a_renamed_key_is_no_sign_of_lost_rows(self, on_mariadb: OnMariaDb, dies: bool) -> None:
        on_mariadb.database.execute("ALTER TABLE target ADD a int NOT NULL UNIQUE", "INSERT INTO target VALUES (1, 7)")
        steps = [rename("a", "b"), TargetStep(StepKind.ADD, "a", "integer", "int")]
        first = on_mariadb.run()
        if dies:
            on_mariadb.killed(first, on_mariadb.alter, steps, done=True)
        else:
            apply(first, version(2), steps)

        with closing(on_mariadb.harness.sink(first.context)) as sink:
            assert sink.claims().loss_evidence is None
        second = on_mariadb.run(2)
        assert second.sink.claims().loss_evidence is None
        on_mariadb.database.execute("DELETE FROM target")
        assert "is empty" in str(second.sink.claims().loss_evidence)


class TestFence:
    def test_a_stale_run_changes_nothing(self, changing: Changing) -> None:
        stale, new = changing.run(1), changing.run(2)

        with pytest.raises(FencedError, match="is at epoch 2"):
            apply(stale, version(2), [NOTE])

        assert (list(changing.columns()), numbers(new), changing.begun()) == (["id"], [], [])

    def test_a_run_that_gets_stale_before_its_statement_does_not_execute_it(self, on_mariadb: OnMariaDb) -> None:
        stale = on_mariadb.run()
        taken = once(lambda: on_mariadb.run(2))
        on_mariadb.monkeypatch.setattr(*on_mariadb.alter, before(on_mariadb.alter.real, taken))
        made = on_mariadb.counted()

        with pytest.raises(SinkError, match="the connection was lost"):
            apply(stale, version(2), [NOTE])

        assert len(made) == 1, "only the new run has made the change"
        assert (list(on_mariadb.columns()), numbers(on_mariadb.runs[-1])) == (["id", "note"], [2])

    def test_a_statement_that_the_server_still_executes_is_ended_by_a_new_run(self, on_mariadb: OnMariaDb) -> None:
        stale = on_mariadb.run()
        server = on_mariadb.database.server
        errors: list[CkptError] = []

        def change() -> None:
            try:
                apply(stale, version(2), [NOTE, TargetStep(StepKind.ADD, "old", "text", "string")])
            except CkptError as error:
                errors.append(error)

        with server.open(on_mariadb.database.name) as reader, reader.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM target")
            changer = threading.Thread(target=change)
            changer.start()
            waiting = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%%'"
            wait_until(lambda: server.execute("mysql", waiting) == [(1,)])
            [(session,)] = server.execute("mysql", waiting.replace("count(*)", "id"))
            timer = threading.Timer(4, reader.rollback)
            timer.start()
            new = on_mariadb.opened(2)
            new.sink.fence(2)  # without the check before it, which would wait for the statement
            changer.join()
            timer.join()

        assert [error.recoverable for error in errors] == [True]
        alive = f"SELECT count(*) FROM information_schema.processlist WHERE id = {session}"
        assert server.execute("mysql", alive) == [(0,)]
        assert (list(on_mariadb.columns()), numbers(new)) == (["id", "note", "old"], [2])

    def test_a_run_waits_for_a_session_of_another_user_and_then_says_so(self, on_mariadb: OnMariaDb) -> None:
        on_mariadb.monkeypatch.setattr("airflow_provider_ckpt.connectors.sql.schema_changes._LOCK_SECONDS", 1.0)
        on_mariadb.monkeypatch.setattr(MySqlDialect, "end_column_change", lambda *_: None)
        first = on_mariadb.run()
        alter = on_mariadb.alter
        refused: list[CkptError] = []

        def take_over() -> None:
            with pytest.raises(SinkError, match="another session is changing the columns") as error:
                on_mariadb.run(2)
            refused.append(error.value)

        on_mariadb.monkeypatch.setattr(*alter, before(alter.real, once(take_over)))
        with pytest.raises(FencedError):
            apply(first, version(2), [NOTE])

        assert refused[0].recoverable
        assert numbers(on_mariadb.run(3)) == [2]

    def test_a_receipt_of_a_stale_epoch_is_left_to_the_new_run(self, on_mariadb: OnMariaDb) -> None:
        first = on_mariadb.run()
        fenced = "UPDATE ckpt_sink_fence SET epoch = 2"
        alter = on_mariadb.alter
        with on_mariadb.monkeypatch.context() as patch:
            patch.setattr(*alter, after(alter.real, lambda: on_mariadb.database.execute(fenced)))
            with pytest.raises(FencedError):
                apply(first, version(2), [NOTE])

        assert (numbers(first), len(on_mariadb.begun())) == ([], 1)
        assert numbers(on_mariadb.run(3)) == [2]


class TestRefusals:
    def test_a_user_that_may_not_alter_the_target_is_told_what_it_needs(self, on_mariadb: OnMariaDb) -> None:
        database = on_mariadb.database
        on_mariadb.run()
        database.execute(
            "CREATE OR REPLACE USER appender@'127.0.0.1' IDENTIFIED BY 'a'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database.name}.* TO appender@'127.0.0.1'",
        )
        database.connection = replace(database.connection, login="appender", password="a")
        run = on_mariadb.run(2)

        with pytest.raises(SinkError, match="ALTER command denied") as refused:
            apply(run, version(2), [NOTE])

        assert "needs ALTER on the target" in str(refused.value.hint)
        assert (list(on_mariadb.columns()), on_mariadb.begun()) == (["id"], [])

    def test_a_dialect_that_cannot_change_columns_is_refused_with_the_section(
        self, on_sqlite: Changing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SqliteDialect, "changes_columns", False)
        source = {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id", "close_wait": "5s"}
        declared = pipeline(source=source, schema={})
        sink = SqlSink(declared, on_sqlite.database.connection, on_sqlite.run().context)

        with pytest.raises(ConfigError, match="schema: the columns of SQLite tables cannot be changed"):
            sink.check()
        sink.close()

    def test_a_target_that_is_gone_is_reported(self, changing: Changing) -> None:
        run = changing.run()
        changing.database.execute("ALTER TABLE target RENAME TO other")

        with pytest.raises(SinkError, match="target table target does not exist any more"):
            apply(run, version(2), [NOTE])


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
