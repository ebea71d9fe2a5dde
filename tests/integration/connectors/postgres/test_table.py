"""The description of a table: the cheaper query that reads it for most tables agrees with the one for all types."""

from __future__ import annotations

import psycopg2

from airflow_provider_ckpt.connectors.postgres.table import describe_table, psycopg_fetch
from tests.services.tables import execute

_COLUMNS = """
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, twice bigint GENERATED ALWAYS AS (id * 2) STORED,
    dropped text, "odd %s {0} ""name" integer NOT NULL DEFAULT 3, short varchar(9), fixed char(4), free numeric,
    exact numeric(12, 3), at timestamptz(3) NOT NULL, local timestamp, length interval second(2), flags bit(5),
    more bit varying(8), word text, bytes bytea, document jsonb, old json, number uuid, range int4range, kind test_kind,
    pair test_pair, name name, vector oidvector, single "char", place point
"""


def test_columns_are_described_alike_with_and_without_an_array_beside_them(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TYPE test_kind AS ENUM ('a', 'b')",
        "CREATE TYPE test_pair AS (a int, b text)",
        f"CREATE TABLE simple ({_COLUMNS})",
        f"CREATE TABLE with_array ({_COLUMNS}, numbers integer[])",
        "CREATE DOMAIN test_name AS varchar(20) NOT NULL",
        f"CREATE TABLE with_domain ({_COLUMNS}, numbers test_name)",
        *(f"ALTER TABLE {name} DROP COLUMN dropped" for name in ("simple", "with_array", "with_domain")),
    )
    connection = psycopg2.connect(postgres_database)
    try:
        fetch = psycopg_fetch(connection)
        simple, array, domain = (describe_table(fetch, name) for name in ("simple", "with_array", "with_domain"))
    finally:
        connection.close()

    assert simple is not None
    assert array is not None
    assert domain is not None
    assert simple.columns == array.columns[:-1] == domain.columns[:-1]
    assert (len(simple.columns), simple.by_name["exact"].exact_type_sql) == (25 - 1, "numeric(12,3)")
    assert (array.columns[-1].is_array, array.columns[-1].element) == (True, "int4")
    assert (domain.columns[-1].type_name, domain.columns[-1].base_type) == ("test_name", "varchar")
