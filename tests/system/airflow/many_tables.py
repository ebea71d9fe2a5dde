"""Tables of ``test_database.py``: six sources, their targets, and the file that declares all of them."""

from __future__ import annotations

from pathlib import Path

from tests.services.tables import execute

NAMES = [f"t{number}" for number in range(6)]
ROWS = 40
_DATABASE = """
name: many
database: {include: ["many.*"], groups: 2}
defaults:
  source: {type: postgres, connection: store, cursor: id, close_wait: 5s}
  sink: {type: postgres, connection: store, table: "copy.{table}"}
  retry: {max_attempts: 1, rounds: 1, initial_delay_ms: 1, on_exhausted: fail}
  recovery: {settle_lag: 0s}
  run: {conf: {spark.master: "local[3]"}}
"""


def declare(dags: Path, store: str) -> None:
    """Write the declaration into the folder of DAG files, and make the tables in the database ``store``."""
    (dags / "many.yaml").write_text(_DATABASE)
    statements = ["CREATE SCHEMA many", "CREATE SCHEMA copy"]
    for name in NAMES:
        statements += [
            f"CREATE TABLE many.{name} (id serial PRIMARY KEY, v int)",
            f"INSERT INTO many.{name} (v) SELECT generate_series(1, {ROWS})",
            f"CREATE TABLE copy.{name} (id int, v int)",
        ]
    execute(store, *statements)
