"""fake-gcs-server as a server for tests, behind a front that speaks Google's XML API.

obstore and delta-rs use the XML API, of which fake-gcs-server supports little; it supports conditions and listings in
JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.request import Request, urlopen

from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.gcs_xml import XmlFront
from tests.services.object_store import BUCKET, ObjectStoreServer, client_settings, installed

if TYPE_CHECKING:
    from obstore.store import GCSStore

FAKE_GCS = "fake-gcs-server-1.56.1"


class FakeGcs(ObjectStoreServer):
    """fake-gcs-server; it asks for no credentials, and forgets everything when it ends."""

    name: ClassVar[str] = "fake-gcs"
    scheme: ClassVar[str] = "gs"

    def __init__(self) -> None:
        super().__init__()
        self._front: XmlFront | None = None

    def connection(self, port: int | None = None) -> Connection:
        """Return a connection of Airflow's type ``google_cloud_platform``; its key says where the emulator is."""
        return Connection("lake", "google_cloud_platform", extra={"project": "ckpt", "keyfile_dict": self._key(port)})

    def client(self, port: int | None = None, *, retries: int = 3) -> GCSStore:
        """Return a client for the bucket."""
        from obstore.store import GCSStore

        return GCSStore(
            BUCKET,
            service_account_key=self._key(port),
            **client_settings(retries),
        )

    @property
    def client_port(self) -> int:
        """Port of the front."""
        assert self._front is not None
        return self._front.port

    def __enter__(self) -> Self:
        super().__enter__()
        self._front = XmlFront(self.port).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._front is not None:
            self._front.__exit__()
        super().__exit__()

    def _key(self, port: int | None) -> str:
        url = f"http://127.0.0.1:{port or self.client_port}"
        key = {"client_email": "", "private_key": self.secret, "private_key_id": ""}
        return json.dumps({"gcs_base_url": url, "disable_oauth": True, **key})

    def _command(self) -> Sequence[str | Path]:
        address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        program = installed(f"{FAKE_GCS}/fake-gcs-server")
        return [
            program,
            *address,
            "-public-host",
            f"127.0.0.1:{self.port}",
            "-backend",
            "memory",
            "-log-level",
            "error",
        ]

    def _create_bucket(self) -> None:
        url = f"http://127.0.0.1:{self.port}/storage/v1/b?project=ckpt"
        body = json.dumps({"name": BUCKET}).encode()
        urlopen(Request(url, body, {"Content-Type": "application/json"})).close()
