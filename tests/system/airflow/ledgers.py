"""Ledgers for connections of each type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.services.postgres import PostgresServer, sqlalchemy_url


@dataclass(frozen=True)
class NamedLedgers:
    """Four ledgers, each behind a connection of its own.

    :param ids: the ledger's id by id of the connection
    :param env: environment variables of Airflow's services that define three of the connections
    :param by_metadata: file of the fourth ledger, whose connection ``by_metadata`` the metadata database has to define
    """

    ids: dict[str, str]
    env: dict[str, str]
    by_metadata: Path


def named_ledgers(folder: Path, server: PostgresServer) -> NamedLedgers:
    """Make the ledgers.

    :param folder: folder for files
    :param server: server for databases
    """
    servers = {way: server.new_database() for way in ("by_uri", "by_backend")}
    uris = {way: dsn.replace("postgresql:", "ckpt:", 1) for way, dsn in servers.items()}
    files = {way: folder / f"{way}.db" for way in ("by_json", "by_metadata")}
    ids = {way: _made(sqlalchemy_url(dsn)) for way, dsn in servers.items()}
    ids |= {way: _made(f"sqlite:///{file}") for way, file in files.items()}
    secrets = folder / "connections.json"
    secrets.write_text(json.dumps({"by_backend": uris["by_backend"]}))
    env = {
        "AIRFLOW_CONN_BY_URI": uris["by_uri"],
        "AIRFLOW_CONN_BY_JSON": json.dumps({"conn_type": "ckpt", "extra": {"path": str(files["by_json"])}}),
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(secrets)}),
    }
    return NamedLedgers(ids, env, files["by_metadata"])


def _made(url: str) -> str:
    """The id of a ledger made there."""
    migrate.upgrade(url, create=True)
    with Ledger.open(url) as ledger:
        return ledger.id
