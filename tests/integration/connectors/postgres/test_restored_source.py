"""A source that was restored or failed over gives positions to other rows; the next run reports this."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGINT

import pytest

from tests.integration.connectors.postgres.test_late_rows import ADD_50, SERIAL, Plans
from tests.services.postgres import PostgresServer
from tests.services.tables import execute


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(in_memory=True) as own:
        yield own


@pytest.fixture
def plans(server: PostgresServer) -> Plans:
    """A table of 50 rows that were planned, on a server of which there is a copy from then; and 50 more since."""
    dsn = server.new_database()
    execute(dsn, SERIAL, ADD_50)
    found = Plans(dsn)
    assert found.next() == 50
    server.back_up()
    execute(dsn, ADD_50)
    assert found.next() == 50
    return found


@pytest.mark.parametrize("rows", [0, 1, 20])
def test_a_server_that_was_restored_from_a_copy_is_told(plans: Plans, server: PostgresServer, rows: int) -> None:
    server.restore()
    execute(plans.dsn, f"INSERT INTO source (note) SELECT 'other' FROM generate_series(1, {rows})")

    assert plans.told()


@pytest.mark.parametrize("rows", [0, 50, 51, 500])
def test_a_standby_that_takes_over_without_the_last_transactions_is_told_however_far_it_has_come(
    plans: Plans, server: PostgresServer, rows: int
) -> None:
    server.restore(new_timeline=True)
    execute(plans.dsn, f"INSERT INTO source (note) SELECT 'other' FROM generate_series(1, {rows})")
    for _ in range(rows):
        execute(plans.dsn, "CREATE TABLE more (id int)", "DROP TABLE more")

    assert plans.told()


def test_a_server_that_was_restarted_is_not_told(plans: Plans, server: PostgresServer) -> None:
    server.stop(SIGINT, keep=True)
    server.start()
    execute(plans.dsn, ADD_50)

    assert plans.next() == 50


def test_a_standby_that_takes_over_with_every_transaction_is_not_told(plans: Plans, server: PostgresServer) -> None:
    server.back_up()
    server.restore(new_timeline=True)
    execute(plans.dsn, ADD_50)

    assert plans.next() == 50


def test_one_that_nobody_can_look_up_is_told(plans: Plans, server: PostgresServer) -> None:
    user = f"plain_{plans.dsn.rsplit('/', 1)[1]}"
    execute(plans.dsn, f"CREATE ROLE {user} LOGIN PASSWORD 'plain'", f"GRANT SELECT ON source, source_id_seq TO {user}")
    plain = Plans(server.database_dsn(plans.dsn.rsplit("/", 1)[1], user, "plain"))
    assert plain.next() == 100
    server.back_up()
    server.restore(new_timeline=True)

    assert "airflow ckpt db roles source" in plain.told()
