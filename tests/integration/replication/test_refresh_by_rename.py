"""Refreshes that swap the staging table for the target: users keep their table, or the swap is refused."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, cast

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres import renaming_sink
from airflow_provider_ckpt.connectors.postgres.renaming_sink import PostgresRenamingSink
from airflow_provider_ckpt.connectors.postgres.replacing_sink import count_rows
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SinkChangedError
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.integration.connectors.interruptions import before, once
from tests.services.ledgers import make_ledger
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer, binaries
from tests.services.replication import DATABASE, Replication
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000
RICH = (
    (
        "CREATE TABLE copied (gone int, id bigint, kind text COLLATE \"C\" NOT NULL DEFAULT 'old',"
        ' "Na%me" varchar(40) NOT NULL, twice bigint GENERATED ALWAYS AS (id * 2) STORED, number serial,'
        " span int4range,"
        " tags text[], CONSTRAINT the_key PRIMARY KEY (id) INCLUDE (kind) WITH (fillfactor = 80),"
        ' CONSTRAINT "no {empty} names" CHECK ("Na%me" <> \'\') NO INHERIT,'
        " CONSTRAINT once UNIQUE (id, kind) DEFERRABLE INITIALLY DEFERRED,"
        " CONSTRAINT apart EXCLUDE USING gist (span WITH &&)"
        ") WITH (fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_enabled = false)"
    ),
    "ALTER TABLE copied DROP COLUMN gone",
    "ALTER TABLE copied ADD COLUMN later int NOT NULL DEFAULT 7",
    'CREATE UNIQUE INDEX "odd USING name" ON copied USING btree (lower(kind) DESC NULLS LAST, id) WHERE id > 0',
    "CREATE UNIQUE INDEX who ON copied (id)",
    "CREATE INDEX twins_1 ON copied (kind text_pattern_ops)",
    "CREATE INDEX twins_2 ON copied (kind text_pattern_ops)",
    "ALTER TABLE copied ALTER kind SET STATISTICS 500, ALTER kind SET STORAGE EXTERNAL",
    "ALTER TABLE copied ALTER id SET (n_distinct = -1)",
    "ALTER TABLE copied CLUSTER ON twins_1",
    "ALTER TABLE copied REPLICA IDENTITY USING INDEX who",
    "COMMENT ON TABLE copied IS 'the countries {of} 100% of ''all'' shops'",
    "COMMENT ON COLUMN copied.kind IS 'a kind'",
    "COMMENT ON CONSTRAINT the_key ON copied IS 'a key'",
    "COMMENT ON CONSTRAINT \"no {empty} names\" ON copied IS 'names'",
    "COMMENT ON INDEX twins_2 IS 'the second'",
    "COMMENT ON SEQUENCE copied_number_seq IS 'numbers'",
)
"""A target that has some of everything that a table can have and that another table can take over."""

OBSTACLES = {
    "a view": ("CREATE VIEW newest AS SELECT max(id) FROM copied", "view newest"),
    "a materialized view": (
        "CREATE MATERIALIZED VIEW newest AS SELECT max(id) FROM copied", "materialized view newest"
    ),
    "a foreign key of another table": (
        "CREATE TABLE cities (country bigint CONSTRAINT of_country REFERENCES copied)",
        "constraint of_country on table cities",
    ),
    "a foreign key of its own": (
        ("CREATE TABLE kinds AS SELECT 7 AS id; ALTER TABLE kinds ADD PRIMARY KEY (id);ALTER TABLE copied"
        " ADD CONSTRAINT own FOREIGN KEY (later) REFERENCES kinds"),
        "foreign key own",
    ),
    "a trigger": (
        ("CREATE TRIGGER audit AFTER INSERT ON copied FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()"), "trigger audit",
    ),
    "a rule": ("CREATE RULE kept AS ON DELETE TO copied WHERE old.id < 0 DO INSTEAD NOTHING", "rule kept"),
    "a policy": ("CREATE POLICY own_rows ON copied USING (id > 0)", "policy own_rows"),
    "row security": ("ALTER TABLE copied ENABLE ROW LEVEL SECURITY", "row level security"),
    "statistics": ("CREATE STATISTICS pairs ON kind, later FROM copied", "statistics object pairs"),
    "an identity": (
        "ALTER TABLE copied ADD COLUMN i int GENERATED ALWAYS AS IDENTITY", "identity column i"
    ),
    "a publication": ("CREATE PUBLICATION news FOR TABLE copied", "publication news"),
    "a publication of all": ("CREATE PUBLICATION whole FOR ALL TABLES", "publication whole"),
    "a child": ("CREATE TABLE child () INHERITS (copied)", "table child"),
    "a parent": (
        "CREATE TABLE parent (later int NOT NULL); ALTER TABLE copied INHERIT parent", "parent table public.parent"
    ),
    "a function": (
        "CREATE FUNCTION first() RETURNS copied LANGUAGE sql AS 'SELECT * FROM copied LIMIT 1'", "function first()"
    ),
    "a column of its type": ("CREATE TABLE kept (whole copied)", "column whole of table kept"),
    "a failed index": (
        ("CREATE INDEX failed ON copied (kind); UPDATE pg_index SET indisvalid = false"
        " WHERE indexrelid = 'failed'::regclass"), "invalid index failed",
    ),
}  # fmt: skip
"""By name, statements after which a target cannot be swapped, and what the error names."""


@pytest.fixture
def countries(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """A pipeline that refreshes a target, which has two rows, from 1,000 rows in batches of about 100."""
    execute(
        postgres_database,
        'CREATE TABLE countries (id bigint PRIMARY KEY, kind text NOT NULL, "Na%me" text NOT NULL)',
        f"INSERT INTO countries SELECT i, 'k' || i % 5, repeat('n', 30) FROM generate_series(1, {ROWS}) i",
        "ANALYZE countries",
        *RICH,
        "INSERT INTO copied (id, \"Na%me\") VALUES (-1, 'a'), (-2, 'b')",
    )
    document = {
        "name": "countries",
        "source": {"type": "postgres", "connection": DATABASE, "table": "countries", "mode": "full"},
        "sink": {
            "type": "postgres", "connection": DATABASE, "table": "copied", "mode": "replace",
            "replace": {"swap": "rename"},
        },
        "commit_strategy": {"commit_interval": 100},
    }  # fmt: skip
    with make_ledger(postgres_server) as ledger:
        yield Replication(cast("SparkSession", None), ledger, postgres_database, document)


def refresh(countries: Replication) -> RunSummary:
    """One whole run without Spark."""
    return replicate(countries.setup(), PlainEngine())


def dumped(dsn: str) -> str:
    """Everything about the target that pg_dump finds, without its rows."""
    command = [str(binaries() / "pg_dump"), "--schema-only", "--table", "copied", "--table", "copied_number_seq", dsn]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", text)


def oid(countries: Replication) -> int:
    return int(scalar(countries.dsn, "SELECT 'copied'::regclass::oid"))


def copied(countries: Replication) -> tuple[int, int]:
    """Number of rows of the target, and of those that the source has as well."""
    query = 'SELECT count(*), count(s.id) FROM copied t LEFT JOIN countries s USING (id, kind, "Na%me")'
    [(rows, same)] = execute(countries.dsn, query)
    return rows, same


def at_publishing(monkeypatch: pytest.MonkeyPatch, countries: Replication, *statements: str) -> None:
    """Run statements once, after rows were staged and before they are published."""
    publish = PostgresRenamingSink._replace_rows
    change = once(lambda: execute(countries.dsn, *statements))
    monkeypatch.setattr(PostgresRenamingSink, "_replace_rows", before(publish, change))


def test_the_table_is_the_same_for_all_who_use_it(countries: Replication, postgres_server: PostgresServer) -> None:
    roles = [f"{countries.dsn.rpartition('/')[2]}_{name}" for name in ("owner", "reader", "other")]
    owner, reader, other = roles
    execute(
        countries.dsn,
        *(f"CREATE ROLE {role}" for role in roles),
        f"GRANT CREATE ON SCHEMA public TO {owner}",
        f"ALTER TABLE copied OWNER TO {owner}",
        f"GRANT SELECT, INSERT ON copied TO {reader} WITH GRANT OPTION",
        f"GRANT SELECT (kind), UPDATE (id) ON copied TO {other}",
        "GRANT SELECT ON copied TO PUBLIC",
        f"REVOKE TRIGGER ON copied FROM {owner}",
        f"GRANT USAGE ON SEQUENCE copied_number_seq TO {reader}",
        f"ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO {other}",
    )
    was, first = dumped(countries.dsn), oid(countries)

    assert refresh(countries).route == ["done"]
    second = oid(countries)
    assert refresh(countries).records.delivered == ROWS

    assert len({first, second, oid(countries)}) == 3
    assert dumped(countries.dsn) == was
    assert copied(countries) == (ROWS, ROWS)
    assert scalar(countries.dsn, "SELECT count(*) FROM copied WHERE twice = id * 2 AND later = 7") == ROWS
    assert scalar(countries.dsn, "SELECT count(*) FROM pg_stats WHERE tablename = 'copied'") > 0
    assert scalar(countries.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ckpt_stage%'") == 0
    assert scalar(countries.dsn, "SELECT relpersistence FROM pg_class WHERE relname = 'copied'") == "p"
    execute(countries.dsn, "INSERT INTO copied (id, kind, \"Na%me\") VALUES (5000, 'k', 'n')")
    assert scalar(countries.dsn, "SELECT min(number) FROM copied WHERE id = 5000") > 2 * ROWS


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_table_on_which_something_depends_is_refused_with_its_name(
    countries: Replication, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statements, phrase = OBSTACLES[name]
    was = oid(countries)
    at_publishing(monkeypatch, countries, statements)

    with pytest.raises(CkptError, match=re.escape(phrase)) as published:
        refresh(countries)
    with pytest.raises(ConfigError, match=re.escape(phrase)) as begun:
        refresh(countries)

    assert published.value.batch is not None
    assert "sink.replace.swap" in f"{begun.value.hint}"
    assert (oid(countries), scalar(countries.dsn, "SELECT count(*) FROM ONLY copied")) == (was, 2)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ALTER TABLE copied ADD COLUMN note text", "column note"),
        ("ALTER TABLE copied ALTER later SET DEFAULT 8", "column later"),
        ("CREATE INDEX new ON copied (later)", "an index on later"),
        ("DROP INDEX twins_2", "an index on kind"),
        ("ALTER TABLE copied ADD CHECK (id <> 0)", "constraint copied_id_check"),
        ("ALTER TABLE copied SET (fillfactor = 60)", "storage option"),
    ],
)
def test_a_table_that_is_altered_while_rows_are_staged_is_not_swapped_and_the_next_refresh_follows(
    countries: Replication, monkeypatch: pytest.MonkeyPatch, change: str, named: str
) -> None:
    at_publishing(monkeypatch, countries, change)
    with pytest.raises(CkptError, match=f"altered while rows were staged: .*{named}"):
        refresh(countries)
    was = dumped(countries.dsn)
    assert scalar(countries.dsn, "SELECT count(*) FROM copied") == 2

    assert refresh(countries).route == ["done"]
    assert copied(countries) == (ROWS, ROWS)
    assert dumped(countries.dsn) == was


def test_grants_and_comments_that_are_changed_while_rows_are_staged_are_those_of_the_new_table(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"{countries.dsn.rpartition('/')[2]}_late"
    statements = (f"CREATE ROLE {role}", f"GRANT SELECT ON copied TO {role}", "COMMENT ON TABLE copied IS 'b'")
    at_publishing(monkeypatch, countries, *statements)

    assert refresh(countries).route == ["done"]

    assert scalar(countries.dsn, f"SELECT has_table_privilege('{role}', 'copied', 'SELECT')")
    assert scalar(countries.dsn, "SELECT obj_description('copied'::regclass)") == "b"


def test_a_grant_that_another_role_has_made_is_refused(countries: Replication) -> None:
    first, second = (f"{countries.dsn.rpartition('/')[2]}_{name}" for name in ("first", "second"))
    execute(
        countries.dsn,
        f"CREATE ROLE {first}; CREATE ROLE {second}",
        f"GRANT SELECT ON copied TO {first} WITH GRANT OPTION",
        f"SET ROLE {first}; GRANT SELECT ON copied TO {second}",
    )

    with pytest.raises(ConfigError, match="a grant cannot be carried over"):
        refresh(countries)


def test_a_user_who_does_not_own_the_table_is_refused(countries: Replication, postgres_server: PostgresServer) -> None:
    database = countries.dsn.rpartition("/")[2]
    role = f"{database}_writer"
    execute(
        countries.dsn,
        f"CREATE ROLE {role} LOGIN PASSWORD 'w'",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
    )
    countries.dsn = postgres_server.database_dsn(database, role, "w")

    with pytest.raises(ConfigError, match=r"may not drop public\.copied, which belongs to") as refused:
        refresh(countries)
    assert refused.value.hint is not None
    assert "to the user, ALTER TABLE" in refused.value.hint


def test_readers_wait_for_short_times_only_until_the_table_is_free(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renaming_sink, "_PAUSE", 0.2)
    longest, ended = [0.0], threading.Event()

    def read() -> None:
        while not ended.wait(0.02):
            at = time.monotonic()
            execute(countries.dsn, "SELECT count(*) FROM copied")
            longest[0] = max(longest[0], time.monotonic() - at)

    def begin() -> None:
        for thread in threads:
            thread.start()

    with closing(psycopg2.connect(countries.dsn)) as holder:
        holder.cursor().execute("SELECT count(*) FROM copied")
        threads = [threading.Thread(target=read), threading.Timer(3, holder.close)]
        publish = before(PostgresRenamingSink._replace_rows, once(begin))
        monkeypatch.setattr(PostgresRenamingSink, "_replace_rows", publish)
        assert refresh(countries).route == ["done"]
        ended.set()
        for thread in threads:
            thread.join()

    assert copied(countries) == (ROWS, ROWS)
    assert 0.3 < longest[0] < 2


def test_a_table_that_is_never_free_is_left_and_the_error_names_who_uses_it(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renaming_sink, "LOCK_SECONDS", 0.3)
    monkeypatch.setattr(renaming_sink, "_PAUSE", 0.1)
    patient = countries.changed(retry={"initial_delay_ms": 10, "max_attempts": 2})

    with closing(psycopg2.connect(countries.dsn, application_name="a long report")) as holder:
        holder.cursor().execute("SELECT count(*) FROM copied")
        summary = refresh(patient)
        events = json.dumps(list(countries.ledger.events("countries")), default=str)
        assert scalar(countries.dsn, "SELECT count(*) FROM copied") == 2

    assert summary.route == ["hold"]
    assert "a long report (pid " in events
    [batch] = countries.ledger.partitions("countries")["public.countries"].partition.blocking.values()
    countries.ledger.action("countries", Action(ActionKind.RELEASE, (batch.key,)), actor="ann", reason="free now")
    assert refresh(countries).route == ["done"]
    assert copied(countries) == (ROWS, ROWS)


def test_rows_that_vanished_from_the_staging_table_are_noticed(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_publishing(monkeypatch, countries, "DELETE FROM ckpt_stage_1_copied WHERE id = 5")

    with pytest.raises(CkptError, match="its receipts count 1,000 rows, and 999 are staged"):
        refresh(countries)
    assert scalar(countries.dsn, "SELECT count(*) FROM copied") == 2


def test_others_cannot_add_rows_between_the_count_and_the_swap(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def counted(fetch: Fetch, table: str) -> int:
        found = count_rows(fetch, table)
        if "ckpt_stage" not in table:
            insert = "SET lock_timeout = '50ms'; INSERT INTO copied (id, \"Na%me\") VALUES (-9, 'c')"
            with pytest.raises(psycopg2.errors.LockNotAvailable):
                execute(countries.dsn, insert)
            assert scalar(countries.dsn, "SELECT count(*) FROM copied") == 2
            waited.append(table)
        return found

    monkeypatch.setattr(renaming_sink, "count_rows", counted)

    assert refresh(countries).route == ["done"]
    assert len(waited) == 1


def test_the_target_keeps_its_identity_until_somebody_else_replaces_it(countries: Replication) -> None:
    refresh(countries)
    audit = audit_sink(countries.setup(), lambda _: None)
    assert (audit["agrees"], audit["differences"]) == (True, [])
    by_rows = countries.changed(sink={"replace": {}})
    assert refresh(by_rows).route == ["done"]
    assert refresh(countries).route == ["done"]

    execute(countries.dsn, "CREATE TABLE other (LIKE copied INCLUDING ALL)", "DROP TABLE copied CASCADE",
            "ALTER TABLE other RENAME TO copied")  # fmt: skip

    with pytest.raises(SinkChangedError, match="its table oid was"):
        refresh(countries)


def test_a_released_refresh_whose_target_was_altered_is_begun_anew(countries: Replication) -> None:
    refresh(countries)
    execute(countries.dsn, "DELETE FROM countries WHERE id > 400")
    assert refresh(countries).route == ["hold"]
    [batch] = countries.ledger.partitions("countries")["public.countries"].partition.blocking.values()
    execute(countries.dsn, "ALTER TABLE copied ADD COLUMN note text")
    countries.ledger.action("countries", Action(ActionKind.RELEASE, (batch.key,)), actor="ann", reason="as it should")

    assert refresh(countries).route == ["hold"], "the approval was of a table of other columns"

    assert copied(countries) == (ROWS, 400)
