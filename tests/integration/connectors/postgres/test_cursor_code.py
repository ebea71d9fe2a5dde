"""Code in a PostgreSQL source that fills the cursor column (triggers, functions, generated columns) is analysed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg2.errors
import pytest

from airflow_provider_ckpt.connectors.postgres import constant_expressions
from airflow_provider_ckpt.connectors.postgres.constant_expressions import time_limited
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.postgres.table import Fetch, psycopg_fetch
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.tables import execute

CACHED = "CREATE SEQUENCE own CACHE 20"
PLAIN = "CREATE SEQUENCE own"
LONG = "x" * 256 * 1024
TABLE = "CREATE TABLE source (id bigint, note text)"


def trigger(
    body: str,
    declare: str = "",
    argument: str = "",
    event: str = "INSERT",
    table: str = TABLE,
    language: str = "plpgsql",
) -> list[str]:
    """A table with a row trigger before an event."""
    return [
        table,
        f"CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $body$ {declare} BEGIN {body} END $body$",
        f"CREATE TRIGGER fill BEFORE {event} ON source FOR EACH ROW EXECUTE FUNCTION fill({argument})",
    ]


TRIGGERS = {
    "a variable": trigger("n := nextval('own'); NEW.id := n; RETURN NEW;", "DECLARE n bigint;"),
    "a declared value": trigger("NEW.id := n; RETURN NEW;", "DECLARE n bigint := nextval('own');"),
    "a record": trigger("SELECT nextval('own') AS n INTO r; NEW.id = r.n; RETURN NEW;", "DECLARE r record;"),
    "into the column": trigger("SELECT nextval('own') INTO STRICT NEW.id; RETURN NEW;"),
    "the last one": trigger("PERFORM nextval('own'); NEW.id := lastval(); RETURN NEW;"),
    "an argument": trigger("NEW.id := nextval(TG_ARGV[0]::regclass); RETURN NEW;", argument="'own'"),
    "the table's name": [
        "CREATE SEQUENCE source_seq CACHE 20",
        *trigger("NEW.id := nextval(format('%I', TG_TABLE_NAME||'_seq')::regclass); RETURN NEW;"),
    ],
    "a whole row": trigger(
        "NEW := json_populate_record(NEW, json_build_object('id', nextval('own'))); RETURN NEW;",
    ),
    "a whole row that is returned": trigger(
        "r := NEW; r.id := nextval('own'); RETURN r;",
        "DECLARE r source;",
    ),
    "a statement": trigger("EXECUTE 'SELECT nextval(''own'')' INTO n; NEW.id := n; RETURN NEW;", "DECLARE n bigint;"),
    "a function": [
        "CREATE FUNCTION give() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN nextval('own'); END $$",
        *trigger("NEW.id := give(); RETURN NEW;"),
    ],
    "an alias": trigger("fresh.id := nextval('own'); RETURN NEW;", "DECLARE fresh ALIAS FOR NEW;"),
    "a loop": trigger("FOR n IN SELECT nextval('own') LOOP NEW.id := n; END LOOP; RETURN NEW;", "DECLARE n bigint;"),
    "where there is none": trigger("IF NEW.id IS NULL THEN NEW.id = nextval('own'); END IF; RETURN NEW;"),
    "a row of another table": [
        "CREATE TABLE ids (i bigint DEFAULT nextval('own'))",
        *trigger("INSERT INTO ids DEFAULT VALUES RETURNING i INTO NEW.id; RETURN NEW;"),
    ],
    "a row of another table with an identity": [
        "CREATE TABLE ids (i bigint GENERATED ALWAYS AS IDENTITY (CACHE 20), n text)",
        *trigger(
            "INSERT INTO public.ids (n) VALUES (NEW.note) RETURNING i INTO n; NEW.id := n; RETURN NEW;",
            "DECLARE n int;",
        ),
    ],
    "a setting": trigger(
        "PERFORM set_config('x.y', nextval('own')::text, true); NEW.id := current_setting('x.y')::bigint; RETURN NEW;"
    ),
    "a row from a function": [
        TABLE,
        """CREATE FUNCTION filled(r source) RETURNS source LANGUAGE plpgsql AS
        $$ BEGIN r.id := nextval('own'); RETURN r; END $$""",
        *trigger("NEW := filled(NEW); RETURN NEW;")[1:],
    ],
    "an update": trigger("NEW.id := nextval('own'); RETURN NEW;", event="INSERT OR UPDATE"),
    "an update alone": trigger("NEW.id := nextval('own'); RETURN NEW;", event="UPDATE"),
    "a nested block": trigger("DECLARE n bigint := nextval('own'); BEGIN NEW.id := n; END; RETURN NEW;"),
    "a cursor variable": trigger(
        "OPEN c; FETCH c INTO n; NEW.id := n; RETURN NEW;", "DECLARE c CURSOR FOR SELECT nextval('own'); n bigint;"
    ),
    "a name from constants in a function's own search path": [
        "CREATE SCHEMA x",
        "ALTER SEQUENCE own SET SCHEMA x",
        *(
            statement.replace("LANGUAGE plpgsql", "LANGUAGE plpgsql SET search_path = x")
            for statement in trigger("NEW.id := nextval(format('%I', 'own')::regclass); RETURN NEW;")
        ),
    ],
    "a comment before it": trigger("/* by '; */ NEW.\"id\" -- own\n := nextval('own'); RETURN NEW;"),
}
DEFAULTS = {
    "BEGIN ATOMIC": [
        "CREATE FUNCTION give() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT nextval('own'); END",
        "CREATE TABLE source (id bigint DEFAULT give())",
    ],
    "RETURN": [
        "CREATE FUNCTION give() RETURNS bigint LANGUAGE sql RETURN nextval('own')",
        "CREATE TABLE source (id bigint DEFAULT give())",
    ],
    "a variable": [
        "CREATE SCHEMA x",
        """CREATE FUNCTION x."New Id"() RETURNS bigint LANGUAGE plpgsql AS
        $$ DECLARE k text := 'own'; BEGIN RETURN nextval(k); END $$""",
        'CREATE TABLE source (id bigint DEFAULT x."New Id"())',
    ],
    "a parameter": [
        "CREATE FUNCTION give(k text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN nextval(k); END $$",
        "CREATE TABLE source (id bigint DEFAULT give('own'))",
    ],
    "a function's own search path": [
        "CREATE SCHEMA x",
        "ALTER SEQUENCE own SET SCHEMA x",
        """CREATE FUNCTION give() RETURNS bigint LANGUAGE plpgsql SET search_path = x AS
        $$ BEGIN RETURN nextval('own'); END $$""",
        "CREATE TABLE source (id bigint DEFAULT give())",
    ],
    "what a generated column is made of": [
        "CREATE TABLE source (n bigint DEFAULT nextval('own'), id bigint GENERATED ALWAYS AS (n * 2) STORED)",
    ],
}
HARMLESS = {
    "another column": trigger("NEW.note := nextval('own')::text; RETURN NEW;"),
    "another sequence beside it": [
        PLAIN.replace("own", "fine"),
        *trigger("NEW.id := nextval('fine'); NEW.note := nextval('own')::text; RETURN NEW;"),
    ],
    "a time of change": trigger(
        "NEW.changed = now(); RETURN NEW;", table="CREATE TABLE source (id bigint, changed timestamp)"
    ),
    "an audit": trigger("INSERT INTO audit VALUES (nextval('own'), NEW.id); RETURN NEW;"),
    "its own sequence by name": [
        "CREATE TABLE source (id bigserial)",
        "ALTER TABLE source ALTER id SET DEFAULT nextval(pg_get_serial_sequence('source', 'id'))",
    ],
    "another trigger that is disabled": [
        *trigger("NEW.id := nextval('own'); RETURN NEW;"),
        "ALTER TABLE source DISABLE TRIGGER fill",
    ],
    "another row or none": trigger("RETURN COALESCE(NEW, OLD);", event="INSERT OR UPDATE"),
    "a test": trigger("IF NEW.id = 0 OR nextval('own') < 0 THEN RAISE 'no'; END IF; RETURN NEW;"),
    "a comment": trigger("-- NEW.id := nextval('own');\n /* NEW.id := nextval('own'); */ RETURN NEW;"),
    "its own value": trigger("NEW.id := OLD.id; RETURN NEW;", event="UPDATE"),
    "the old row": trigger("NEW := OLD; RETURN NEW;", event="UPDATE"),
    "the row where it belongs": trigger("EXECUTE 'INSERT INTO part SELECT $1.*' USING NEW; RETURN NULL;"),
    "another column of the whole row": trigger(
        "NEW := jsonb_populate_record(NEW, to_jsonb(NEW) || jsonb_build_object('note', now())); RETURN NEW;"
    ),
    "after the insert": [
        statement.replace("BEFORE INSERT", "AFTER INSERT")
        for statement in trigger("NEW.id := nextval('own'); RETURN NEW;")
    ],
}
UNREADABLE = {
    "a sequence whose name is made": trigger(
        "NEW.id := nextval(k || '_seq'); RETURN NEW;", "DECLARE k text := session_user;"
    ),
    "a statement": trigger("EXECUTE (SELECT note FROM statements) INTO NEW.id; RETURN NEW;"),
    "a name of any length": trigger("NEW.id := nextval(format('%500000000s', '')); RETURN NEW;"),
    "a name that cannot be evaluated": trigger(
        "NEW.id := nextval(pg_get_serial_sequence('nowhere', 'id')); RETURN NEW;"
    ),
    "another language": [
        TABLE,
        "CREATE FUNCTION give() RETURNS bigint LANGUAGE internal VOLATILE AS 'pg_backend_pid'",
        "ALTER TABLE source ALTER id SET DEFAULT give()",
    ],
    "a long trigger": trigger(f"NEW.id := 1; /* {LONG} */ RETURN NEW;"),
    "a long function": [
        f"CREATE FUNCTION give() RETURNS bigint LANGUAGE sql AS $$ SELECT 1 /* {LONG} */ $$",
        *trigger("NEW.id := give(); RETURN NEW;"),
    ],
    "a long default": [f"CREATE TABLE source (id bigint DEFAULT length('{LONG}'))"],
}


def refused(dsn: str, **source: Any) -> str:
    with (
        closing(PostgresSource(pipeline(source=source), connection(dsn))) as opened,
        pytest.raises(ConfigError) as caught,
    ):
        opened.check()
    assert caught.value.pipeline == "orders"
    assert "source.late_rows: recover" in str(caught.value)
    return str(caught.value)


def fine(dsn: str, **source: Any) -> None:
    with closing(PostgresSource(pipeline(source=source), connection(dsn))) as opened:
        opened.check()


class TestSequences:
    @pytest.mark.parametrize("way", TRIGGERS)
    def test_one_that_a_trigger_uses_is_found(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, CACHED, *TRIGGERS[way])

        assert "hands out 20 values at a time" in refused(postgres_database)

    @pytest.mark.parametrize("way", DEFAULTS)
    def test_one_that_a_default_uses_is_found(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, CACHED, *DEFAULTS[way])

        assert "hands out 20 values at a time" in refused(postgres_database)

    @pytest.mark.parametrize("way", [*TRIGGERS, *DEFAULTS])
    def test_one_without_a_cache_is_no_matter(self, postgres_database: str, way: str) -> None:
        made = (TRIGGERS | DEFAULTS)[way]
        execute(
            postgres_database,
            PLAIN,
            *(statement.replace(" (CACHE 20)", "").replace(" CACHE 20", "") for statement in made),
        )

        fine(postgres_database)

    @pytest.mark.parametrize("way", HARMLESS)
    def test_one_that_does_not_fill_the_cursor_is_no_matter(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, CACHED, *HARMLESS[way])

        fine(postgres_database)

    def test_the_trigger_of_many_partitions_is_read_once(
        self, postgres_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        execute(
            postgres_database,
            PLAIN,
            *trigger(
                "NEW.id := nextval('own'); RETURN NEW;",
                table="CREATE TABLE source (id bigint, note text) PARTITION BY RANGE (id)",
            ),
            *(f"CREATE TABLE p{n} PARTITION OF source FOR VALUES FROM ({n}0) TO ({n}9)" for n in range(1, 30)),
        )
        asked: list[str] = []

        def counted(connection: Any) -> Fetch:
            fetch = psycopg_fetch(connection)

            def count(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
                asked.append(statement)
                return fetch(statement, values)

            return count

        monkeypatch.setattr("airflow_provider_ckpt.connectors.postgres.source_session.psycopg_fetch", counted)

        fine(postgres_database)

        assert len(asked) < 30

    @pytest.mark.parametrize("way", UNREADABLE)
    def test_code_that_cannot_be_read_is_refused_by_name(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, *UNREADABLE[way])

        assert "it is unknown whether new rows can get smaller values" in refused(postgres_database)


class TestTimeLimit:
    @pytest.mark.parametrize(("own", "limit"), [("0", "5s"), ("17s", "17s")])
    def test_it_holds_for_one_query_of_a_session_without_a_limit(
        self, postgres_database: str, own: str, limit: str
    ) -> None:
        with closing(psycopg2.connect(postgres_database, options=f"-c statement_timeout={own}")) as opened:
            opened.autocommit = True
            fetch = psycopg_fetch(opened)
            current = "SELECT current_setting('statement_timeout')"

            assert fetch(time_limited(current), []) == [(limit,)]
            assert fetch(current, []) == [(own,)]

    def test_a_query_that_takes_longer_is_cancelled(
        self, postgres_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constant_expressions, "_LIMIT_TIME", constant_expressions._LIMIT_TIME.replace("5s", "50ms"))
        with closing(psycopg2.connect(postgres_database)) as opened:
            opened.autocommit = True

            with pytest.raises(psycopg2.errors.QueryCanceled):
                psycopg_fetch(opened)(time_limited("SELECT pg_sleep(60)"), [])
            assert psycopg_fetch(opened)("SELECT 1", []) == [(1,)]


HOUR = "CREATE FUNCTION hour() RETURNS timestamptz LANGUAGE sql AS $$ SELECT date_trunc('hour', now()) $$"
TIMED = "CREATE TABLE source (id timestamptz, day date, note text)"
COARSE = {
    "a function": [HOUR, "CREATE TABLE source (id timestamptz DEFAULT hour())"],
    "a function of the new kind": [
        HOUR.replace("AS $$ SELECT", "RETURN").replace("$$", ""),
        "CREATE TABLE source (id timestamptz DEFAULT hour())",
    ],
    "a function that calls another": [
        HOUR,
        """CREATE FUNCTION begun() RETURNS timestamptz LANGUAGE plpgsql AS
        $$ DECLARE t timestamptz; BEGIN t := hour(); RETURN t; END $$""",
        "CREATE TABLE source (id timestamptz DEFAULT begun())",
    ],
    "a default": ["CREATE TABLE source (id timestamptz DEFAULT date_trunc('hour', now()))"],
    "a default with functions of other kinds": [
        "CREATE TABLE source (id timestamptz DEFAULT date_trunc('hour', now()) + length(version()) * interval '1 s')"
    ],
    "a trigger": trigger("NEW.id := date_trunc('hour', now()); RETURN NEW;", table=TIMED),
    "a trigger on what it is given": trigger("NEW.id := date_trunc('second', NEW.id); RETURN NEW;", table=TIMED),
    "a trigger's variable": trigger(
        "t := now()::date; NEW.id := t; RETURN NEW;", "DECLARE t timestamptz;", table=TIMED
    ),
    "the type of a trigger's variable": trigger(
        "t := now(); NEW.id := t; RETURN NEW;", "DECLARE t timestamptz(3);", table=TIMED
    ),
    "a day of a trigger's variable": trigger("t := now(); NEW.id := t; RETURN NEW;", "DECLARE t date;", table=TIMED),
    "a trigger that selects": trigger("SELECT INTO NEW.id date_trunc('hour', now()); RETURN NEW;", table=TIMED),
    "a trigger's function": [HOUR, *trigger("SELECT hour() INTO NEW.id; RETURN NEW;", table=TIMED)],
    "a trigger at updates": trigger("NEW.id = CURRENT_TIMESTAMP(0); RETURN NEW;", event="UPDATE", table=TIMED),
    "a generated column": [
        """CREATE TABLE source (at timestamp DEFAULT localtimestamp,
        id timestamp GENERATED ALWAYS AS (date_trunc('hour', at)) STORED)"""
    ],
    "hours as a number": [
        "CREATE TABLE source (id bigint DEFAULT extract(epoch FROM date_trunc('hour', now()))::bigint)"
    ],
    "seconds as a number": ["CREATE TABLE source (id bigint DEFAULT extract(epoch FROM now())::bigint)"],
    "milliseconds as a number": [
        "CREATE TABLE source (id bigint DEFAULT extract(epoch FROM clock_timestamp()) * 1000)"
    ],
    "seconds by a trigger": trigger("NEW.id := extract(epoch FROM clock_timestamp())::bigint; RETURN NEW;"),
    "seconds by a function": [
        "CREATE FUNCTION give() RETURNS bigint LANGUAGE sql AS $$ SELECT extract(epoch FROM now())::bigint $$",
        "CREATE TABLE source (id bigint DEFAULT give())",
    ],
    "seconds of a column": [
        """CREATE TABLE source (at timestamp DEFAULT localtimestamp,
        id bigint GENERATED ALWAYS AS (extract(epoch FROM at)::bigint) STORED)"""
    ],
}
FINE = {
    "another column of a trigger": trigger(
        "NEW.day := date_trunc('day', now()); NEW.id := now(); RETURN NEW;", table=TIMED
    ),
    "a rounded time beside it": trigger(
        "IF date_trunc('day', now()) > now() THEN RAISE 'no'; END IF; NEW.id := clock_timestamp(); RETURN NEW;",
        table=TIMED,
    ),
    "a column that is no finer": trigger(
        "NEW.id := date_trunc('second', now()); RETURN NEW;", table=TIMED.replace("timestamptz", "timestamptz(0)")
    ),
    "the moment": [
        "CREATE FUNCTION moment() RETURNS timestamptz LANGUAGE sql AS $$ SELECT clock_timestamp() $$",
        "CREATE TABLE source (id timestamptz DEFAULT moment())",
    ],
    "an extension's trigger": [
        "CREATE EXTENSION moddatetime",
        TIMED,
        "CREATE TRIGGER t BEFORE UPDATE ON source FOR EACH ROW EXECUTE FUNCTION moddatetime(id)",
    ],
    "a day": ["CREATE TABLE source (id date DEFAULT current_date)"],
    "microseconds as a number": [
        "CREATE TABLE source (id bigint DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    ],
    "a time with a number of its own": [
        "CREATE SEQUENCE own",
        """CREATE TABLE source (id bigint DEFAULT
        ((extract(epoch FROM clock_timestamp()) * 1000)::bigint << 20) + nextval('own') % 1000000)""",
    ],
    "functions of other kinds": [
        "CREATE TABLE source (id timestamptz DEFAULT now() + length(version()) * interval '1 s')"
    ],
    "a generated column": [
        "CREATE TABLE source (at timestamp, id timestamp GENERATED ALWAYS AS (at + interval '1 hour') STORED)"
    ],
}


class TestValuesThatStandStill:
    @pytest.mark.parametrize("way", COARSE)
    def test_are_refused_wherever_they_are_rounded(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, *COARSE[way])

        assert "which is rounded" in refused(postgres_database)

    @pytest.mark.parametrize("way", FINE)
    def test_others_are_fine(self, postgres_database: str, way: str) -> None:
        execute(postgres_database, *FINE[way])

        fine(postgres_database)
