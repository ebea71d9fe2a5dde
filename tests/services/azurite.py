"""Azurite, Microsoft's emulator of Azure Blob Storage, as a server for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.request import Request, urlopen

from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.object_store import BUCKET, ObjectStoreServer, client_settings, installed

if TYPE_CHECKING:
    from obstore.store import AzureStore

ACCOUNT = "ckpttests"
AZURITE = "azurite-3.37.0"
_API_VERSION = "2021-08-06"


class Azurite(ObjectStoreServer):
    """Azurite's blob service; it verifies signatures, and a killed one forgets its newest objects."""

    name: ClassVar[str] = "azurite"
    scheme: ClassVar[str] = "az"

    def __init__(self) -> None:
        super().__init__()
        self.secret = base64.b64encode(secrets.token_bytes(64)).decode()

    def connection(self, port: int | None = None) -> Connection:
        """Return a connection of Airflow's type ``wasb``."""
        return Connection("lake", "wasb", host=self._endpoint(port), login=ACCOUNT, password=self.secret)

    def client(self, port: int | None = None, *, retries: int = 3) -> AzureStore:
        """Return a client for the container."""
        from obstore.store import AzureStore

        return AzureStore(
            BUCKET,
            account_name=ACCOUNT,
            account_key=self.secret,
            endpoint=self._endpoint(port),
            **client_settings(retries),
        )

    def _endpoint(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self.port}/{ACCOUNT}"

    def _command(self) -> Sequence[str | Path]:
        program = installed(f"{AZURITE}/node_modules/azurite/dist/src/blob/main.js")
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(self.home / "data")]
        return ["node", program, *where, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    def _environment(self) -> Mapping[str, str]:
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret}"}

    def _create_bucket(self) -> None:
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": _API_VERSION}
        signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        text = "PUT" + "\n" * 12 + f"{signed}/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.secret), text.encode(), hashlib.sha256).digest()
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
        url = f"{self._endpoint()}/{BUCKET}?restype=container"
        urlopen(Request(url, method="PUT", headers=headers)).close()
