"""``airflow ckpt database`` with tables of a MariaDB server as sources, into PostgreSQL, on a standing Spark driver."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.command import CkptCommand, write_pipeline
from tests.services.mariadb import MariaDbServer
from tests.services.tables import execute
from tests.services.warm_airflow import WarmAirflow
from tests.services.warm_spark import WarmSpark


def uri(connection: Connection) -> str:
    """Return a connection as Airflow reads it from an environment variable."""
    found = {name: value for name, value in asdict(connection).items() if name not in ("id", "type") and value}
    return json.dumps({"conn_type": connection.type, **found}, default=dict)


def test_tables_of_mariadb_are_replicated_as_those_of_postgresql_are(
    mariadb_server: MariaDbServer,
    postgres_database: str,
    tmp_path: Path,
    warm_airflow: WarmAirflow,
    standing_spark: WarmSpark,
) -> None:
    shop = mariadb_server.new_database()
    for name in ("a", "b", "empty"):
        mariadb_server.execute(shop, f"CREATE TABLE {name} (id int AUTO_INCREMENT PRIMARY KEY, v varchar(20))")
        execute(postgres_database, f"CREATE TABLE {name} (id int, v text)")
    mariadb_server.execute(shop, "CREATE TABLE odd (code int)", "CREATE TABLE left_tmp (id int)")
    for name in ("a", "b"):
        mariadb_server.execute(shop, f"INSERT INTO {name} (v) SELECT concat('row ', seq) FROM seq_1_to_20")
    write_pipeline(
        tmp_path / "shop.yaml",
        {
            "name": "shop",
            "database": {"include": [f"{shop}.*"], "exclude": ["*_tmp", "*.odd"]},
            "defaults": {
                "source": {"type": "sql", "connection": "shop", "cursor": "id", "close_wait": "5s"},
                "sink": {"type": "postgres", "connection": "warehouse", "table": "{table}"},
            },
        },
    )
    connections = {"shop": uri(mariadb_server.connection(shop)), "warehouse": postgres_database}
    command = CkptCommand(warm_airflow.home, connections, airflow=warm_airflow.command)
    command.env |= standing_spark.environment

    def run() -> dict[str, Any]:
        done = command.run("database", "run", str(tmp_path / "shop.yaml"), "-o", "json")
        assert done.returncode == 0, done.stderr
        return {
            item["table"].removeprefix(f"{shop}."): item["summary"]["records"]["delivered"]
            for item in json.loads(done.stdout)["tables"]
        }

    command.migrate()
    checked = command.run("validate", "--connect", str(tmp_path / "shop.yaml"))
    first, again = run(), run()
    mariadb_server.execute(shop, "INSERT INTO b (v) VALUES ('late')")
    third = run()

    assert checked.returncode == 0, checked.stderr
    assert first == {"a": 20, "b": 20, "empty": 0}
    assert again == {}
    assert third == {"b": 1}
    for name in ("a", "b", "empty"):
        query = f"SELECT id, v FROM {name} ORDER BY id"
        assert list(mariadb_server.execute(shop, query)) == list(execute(postgres_database, query))
