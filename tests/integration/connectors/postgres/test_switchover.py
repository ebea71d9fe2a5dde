"""A standby becomes the source: runs continue if nothing was lost, and report it if something may be lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from signal import SIGINT, SIGQUIT, Signals
from time import monotonic, sleep

import pytest

from airflow_provider_ckpt.connectors.postgres.source_roles import SourceRoles
from tests.integration.connectors.postgres.test_late_rows import ADD_50, SERIAL, Plans
from tests.services.postgres import PostgresServer, binaries
from tests.services.tables import execute, scalar

PASSWORD = "few-rights"


class Cluster:
    """A primary with a table of 50 rows, read by a role of its own, and standbys that follow it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.server = stack.enter_context(PostgresServer(in_memory=True))
        self.database = self.server.new_database().rsplit("/", 1)[1]
        execute(self.owner, SERIAL, ADD_50, f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'")
        execute(self.owner, "GRANT SELECT ON source, source_id_seq TO plain")
        self.plans = Plans("")

    @property
    def owner(self) -> str:
        """As a superuser, on the server that is the primary now."""
        return self.server.database_dsn(self.database)

    def standby(self) -> PostgresServer:
        """One more server that follows."""
        made = self.server.standby()
        self._stack.callback(made.stop)
        return made

    def caught_up(self, standby: PostgresServer) -> None:
        """Wait until a standby has all that the primary wrote."""
        end = scalar(self.owner, "SELECT pg_current_wal_insert_lsn()::text")
        deadline = monotonic() + 60
        while not scalar(standby.dsn, f"SELECT pg_last_wal_replay_lsn() >= '{end}'"):
            assert monotonic() < deadline
            sleep(0.05)

    def switch(self, standby: PostgresServer, how: Signals = SIGINT) -> None:
        """The primary ends, the standby takes over, and the source's connection leads there."""
        self.server.stop(how, keep=True)
        self._stack.callback(self.server.stop)
        standby.promote()
        self.server = standby

    def next(self) -> int:
        """Plan as the role; how many rows are new."""
        self.plans.dsn = self.server.database_dsn(self.database, "plain", PASSWORD)
        return self.plans.next()

    def told(self) -> str:
        """Plan again and return the error message."""
        self.plans.dsn = self.server.database_dsn(self.database, "plain", PASSWORD)
        return self.plans.told()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack)


SCRIPT = SourceRoles("public", "plain", ["source"]).sql


@pytest.mark.parametrize("how", [SIGINT, SIGQUIT])
def test_a_switchover_that_lost_nothing_goes_on_for_an_ordinary_role(cluster: Cluster, how: Signals) -> None:
    execute(cluster.owner, SCRIPT)
    first, second = cluster.standby(), cluster.standby()
    assert cluster.next() == 50
    for standby in (first, second):
        cluster.caught_up(standby)

    cluster.switch(first, how)
    execute(cluster.owner, ADD_50)

    assert cluster.next() == 50
    assert cluster.next() == 0


def test_two_switchovers_between_two_runs_go_on(cluster: Cluster) -> None:
    execute(cluster.owner, SCRIPT)
    first = cluster.standby()
    assert cluster.next() == 50
    cluster.caught_up(first)
    cluster.switch(first)
    second = cluster.standby()
    cluster.caught_up(second)
    cluster.switch(second)
    execute(cluster.owner, ADD_50)

    assert cluster.next() == 50


def test_a_failover_without_the_last_rows_is_told_with_the_place_where_the_timelines_parted(cluster: Cluster) -> None:
    execute(cluster.owner, SCRIPT)
    standby = cluster.standby()
    assert cluster.next() == 50
    cluster.caught_up(standby)
    standby.stop(SIGINT, keep=True)
    execute(cluster.owner, ADD_50)
    assert cluster.next() == 50

    cluster.server.stop(SIGQUIT, keep=True)
    standby.start()
    cluster.switch(standby)
    execute(cluster.owner, ADD_50, *["INSERT INTO source (note) VALUES ('x')"] * 50)

    assert "they diverged at " in cluster.told()


def test_without_the_function_it_is_told_with_the_way_to_make_it_which_ends_it(cluster: Cluster) -> None:
    standby = cluster.standby()
    assert cluster.next() == 50
    cluster.caught_up(standby)
    cluster.switch(standby)
    execute(cluster.owner, ADD_50)

    assert "airflow ckpt db roles source" in cluster.told()
    execute(cluster.owner, SCRIPT)
    assert cluster.next() == 50


def test_a_function_by_someone_who_may_not_read_the_history_is_not_believed(cluster: Cluster) -> None:
    standby = cluster.standby()
    assert cluster.next() == 50
    execute(
        cluster.owner,
        "CREATE ROLE liar",
        "CREATE SCHEMA lies AUTHORIZATION liar",
        "CREATE FUNCTION lies.ckpt_timeline_history() RETURNS TABLE (timeline bigint, switched pg_lsn) LANGUAGE sql "
        "SECURITY DEFINER AS 'SELECT 1::bigint, ''FF/0''::pg_lsn'",
        "ALTER FUNCTION lies.ckpt_timeline_history() OWNER TO liar",
        "GRANT USAGE ON SCHEMA lies TO PUBLIC",
    )
    cluster.caught_up(standby)
    cluster.switch(standby)

    assert "it is not known" in cluster.told()


def test_another_standby_that_began_the_same_timeline_elsewhere_is_told(cluster: Cluster) -> None:
    """Both of two standbys take over, neither knowing of the other, and the connection moves from one to the other."""
    execute(cluster.owner, SCRIPT)
    first, second = cluster.standby(), cluster.standby()
    assert cluster.next() == 50
    cluster.caught_up(first)
    cluster.caught_up(second)
    first.stop(SIGINT, keep=True)
    execute(cluster.owner, "CREATE TABLE only_one_of_them_has_it ()")
    cluster.caught_up(second)
    old, cluster.server = cluster.server, first
    old.stop(SIGQUIT)
    first.start()
    first.promote()
    second.promote()
    execute(cluster.owner, ADD_50)
    assert cluster.next() == 50

    cluster.server = second
    execute(cluster.owner, *[ADD_50] * 10)

    assert "started timeline 00000002 independently" in cluster.told()


def test_the_script_gives_the_role_what_it_needs_and_nothing_else(cluster: Cluster) -> None:
    execute(cluster.owner, "CREATE TABLE more (id int)")
    script = SourceRoles("public", "reads", ["source"]).sql
    psql = [str(binaries() / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", cluster.owner]

    for _ in range(2):
        subprocess.run(psql, input=script, text=True, check=True)

    execute(cluster.owner, f"ALTER ROLE reads PASSWORD '{PASSWORD}'")
    dsn = cluster.server.database_dsn(cluster.database, "reads", PASSWORD)
    assert Plans(dsn).next() == 50
    assert execute(dsn, "SELECT * FROM ckpt_timeline_history()") == []
    rights = "has_sequence_privilege('source_id_seq', 'SELECT'), has_table_privilege('more', 'SELECT')"
    others = "has_function_privilege('plain', 'ckpt_timeline_history()', 'EXECUTE')"
    writes = "has_table_privilege('source', 'INSERT, UPDATE, DELETE')"
    assert execute(dsn, f"SELECT {rights}, {others}, {writes}") == [(True, False, False, False)]


def test_the_script_of_one_who_may_not_read_files_grants_the_rest(cluster: Cluster) -> None:
    execute(cluster.owner, "CREATE ROLE owns LOGIN CREATEROLE PASSWORD 'owns'", "ALTER TABLE source OWNER TO owns")
    execute(cluster.owner, "GRANT CREATE ON SCHEMA public TO owns", "CREATE ROLE reads")
    dsn = cluster.server.database_dsn(cluster.database, "owns", "owns")

    execute(dsn, SourceRoles("public", "reads", ["source"]).sql)

    assert scalar(dsn, "SELECT has_table_privilege('reads', 'source', 'SELECT')")
    assert scalar(dsn, "SELECT to_regprocedure('ckpt_timeline_history()') IS NULL")
