"""Number of statements, transactions and sessions of PostgreSQL that the run of one of many small tables takes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from urllib.parse import urlsplit

from tests.integration.cli.test_database import Shop, shop
from tests.services.postgres import PostgresServer, sqlalchemy_url

__all__ = ["shop"]  # the fixture

_TABLES = 8
_STATEMENT = re.compile(
    r"^[^[\n]*\[(\d+)\] (ckpt[a-z-]*)\S* \d+ LOG:  (?:statement|execute [^:]+):\s+(\S+)", re.MULTILINE
)
_MOST_STATEMENTS = {"ckpt-ledger": 158, "ckpt-plan": 48, "ckpt-sink": 62, "ckpt-read": 6, "ckpt": 8}
"""Largest number of statements for each table, by the application_name's first part. A reset of a session counts."""
_MOST_TRANSACTIONS = 24
"""Largest number of transactions of the ledger for each table."""


def test_a_small_table_takes_few_statements_and_runs_pass_their_sessions_on(
    shop: Shop, postgres_server: PostgresServer
) -> None:
    ledger = postgres_server.new_database()
    shop.command.env["AIRFLOW__CKPT__SQL_ALCHEMY_CONN"] = sqlalchemy_url(ledger)
    shop.command.migrate()
    shop.table("first")
    earlier, _ = shop.run()
    for number in range(_TABLES):
        shop.table(f"t{number}")
    for dsn in (ledger, shop.dsn):
        shop.sql(f"ALTER DATABASE {urlsplit(dsn).path[1:]} SET log_statement = 'all'")
    before = len(postgres_server.log)

    done, ran = shop.run("--at-once", "1")
    found = _STATEMENT.findall(postgres_server.log[before:])
    postgres_server.drop_database(ledger)

    assert earlier.returncode == 0, earlier.stderr
    assert [item["state"] for item in ran.values()] == ["done"] * _TABLES, done.stderr
    statements = Counter(name for _, name, _ in found)
    pids = defaultdict(set)
    for pid, name, _ in found:
        pids[name].add(pid)
    del statements["ckpt-database"]  # one look at all tables
    each = {name: number / _TABLES for name, number in statements.items()}
    assert not {name: number for name, number in each.items() if number > _MOST_STATEMENTS[name]}
    begun = sum(name == "ckpt-ledger" and word == "BEGIN" for _, name, word in found)
    assert begun / _TABLES <= _MOST_TRANSACTIONS
    assert len(pids["ckpt-ledger"]) <= 3
    assert len(pids["ckpt-plan"]) <= 2  # one run works, and another waits for its turn
    assert len(pids["ckpt-sink"]) <= 2
