"""Secrets of object stores and of MariaDB appear in no output of a DAG run, and in no command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from tests.integration.docs.reader import environment
from tests.services.mariadb import MariaDbServer
from tests.services.object_stores import ObjectStores

STORES = {"amazon": "versitygw", "azure": "azurite", "google": "fake-gcs"}
"""The store that each connection leads to."""

DAG = """
from airflow.sdk import DAG
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

with DAG("secrets", schedule=None):
    (
        CkptReplicateOperator(task_id="google_to_amazon", pipeline={stored!r})
        >> CkptReplicateOperator(task_id="azure_to_mariadb", pipeline={sold!r})
    )
"""


@pytest.fixture
def shop(mariadb_server: MariaDbServer) -> Iterator[Connection]:
    """A database with an empty table."""
    database = mariadb_server.new_database()
    mariadb_server.execute(database, "CREATE TABLE target (id bigint NOT NULL)")
    yield mariadb_server.connection(database, "shop")
    mariadb_server.drop_database(database)


def test_a_run_leaves_no_secret_of_its_stores(object_stores: ObjectStores, shop: Connection, tmp_path: Path) -> None:
    stores = {name: object_stores.get(kind) for name, kind in STORES.items()}
    for name in ("google", "azure"):
        stores[name].put({"secrets/in/a.jsonl": b'{"id": 1}\n{"id": "bad"}\n'})
    letters = {"sink": "files", "path": stores["azure"].url("secrets/letters"), "connection": "azure"}
    decoded = {"transform": {"decode": "json", "schema": "id bigint"}, "dead_letter_queue": letters}
    events = tmp_path / "events"
    events.mkdir()
    logged = {"spark.master": "local[1]", "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    stored = {
        "name": "stored",
        "source": {"type": "files", "path": stores["google"].url("secrets/in"), "connection": "google"},
        "sink": {"type": "delta", "path": stores["amazon"].url("secrets/table"), "connection": "amazon"},
        "run": {"conf": logged},
        **decoded,
    }
    sold = {
        "name": "sold",
        "source": {"type": "files", "path": stores["azure"].url("secrets/in"), "connection": "azure"},
        "sink": {"type": "sql", "connection": "shop", "table": "target"},
        "run": {"conf": logged},
        **decoded,
    }
    dags = tmp_path / "airflow" / "dags"
    dags.mkdir(parents=True)
    (dags / "secrets.py").write_text(DAG.format(stored=stored, sold=sold))
    password = str(shop.password)
    env = {
        **environment(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/ledger.db",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",  # at DEBUG, Airflow itself logs the secrets that it is told to mask
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    connections = {f"AIRFLOW_CONN_{name.upper()}": store.airflow_connection() for name, store in stores.items()}
    connections["AIRFLOW_CONN_SHOP"] = _as_json(shop)
    secrets = [password, *(store.secret for store in stores.values())]

    with CommandLines() as lines:
        told = _airflow(env, "db", "migrate")
        told += _airflow({**env, **connections}, "dags", "test", "secrets")

    assert "sold, epoch 1: 1 batches" in told
    assert "stored, epoch 1: 1 batches" in told
    left = {"output": told.encode(), "command lines": "\n".join(lines.seen).encode()}
    left |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name, store in stores.items():
        left |= {f"{name}/{key}": data for key, data in store.objects("secrets").items()}
    assert any(name.startswith(str(events)) for name in left)
    assert any("letters" in name for name in left)
    assert any("spark-submit" in line or "SparkSubmit" in line for line in lines.seen)
    assert [name for name, data in left.items() if any(secret.encode() in data for secret in secrets)] == []


class CommandLines:
    """Collects the command lines of all processes of this user, until the context ends."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._over = Event()
        self._thread = Thread(target=self._look)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:  # it has ended
                    continue


def _airflow(env: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(["airflow", *arguments], env=env, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _as_json(connection: Connection) -> str:
    fields = ("host", "port", "login", "password", "schema", "extra")
    values = {name: getattr(connection, name) for name in fields if getattr(connection, name)}
    return json.dumps({"conn_type": connection.type, **values})
