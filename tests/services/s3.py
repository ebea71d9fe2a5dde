"""Two S3 servers for tests: versitygw, which stores objects as files, and moto, which stores them in memory.

Run as a script, this module is the process of moto.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.object_store import BUCKET, ObjectStoreServer, client_settings, installed

if TYPE_CHECKING:
    from obstore.store import S3Store

REGION = "us-east-1"
VERSITYGW = "versitygw-1.8.0"


class S3Server(ObjectStoreServer):
    """The part that both servers share: connection, client, bucket."""

    scheme: ClassVar[str] = "s3"
    _key = "ckpt-tests"

    def connection(self, port: int | None = None) -> Connection:
        """Return a connection of Airflow's type ``aws``."""
        extra = {"endpoint_url": self._endpoint(port), "region_name": REGION}
        return Connection("lake", "aws", login=self._key, password=self.secret, extra=extra)

    def client(self, port: int | None = None, *, retries: int = 3) -> S3Store:
        """Return a client for the bucket."""
        from obstore.store import S3Store

        return S3Store(
            BUCKET,
            endpoint=self._endpoint(port),
            access_key_id=self._key,
            secret_access_key=self.secret,
            region=REGION,
            **client_settings(retries),
        )

    def uploads(self) -> list[str]:
        """Return the keys of all uploads in parts that were neither completed nor given up."""
        found = self.boto().list_multipart_uploads(Bucket=BUCKET)
        return [item["Key"] for item in found.get("Uploads", ())]

    def _endpoint(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self.port}"

    def _create_bucket(self) -> None:
        self.boto().create_bucket(Bucket=BUCKET)

    def boto(self) -> Any:
        """Return a client that knows all requests of S3."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self._endpoint(),
            aws_access_key_id=self._key,
            aws_secret_access_key=self.secret,
            region_name=REGION,
        )


class VersityGateway(S3Server):
    """versitygw over a directory; it verifies signatures, and a killed one finds its objects again."""

    name: ClassVar[str] = "versitygw"

    def _command(self) -> Sequence[str | Path]:
        data = self.home / "data"
        data.mkdir(exist_ok=True)
        (self.home / "meta").mkdir(exist_ok=True)
        program = installed(f"{VERSITYGW}/versitygw")
        return [program, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", "--sidecar", self.home / "meta", data]

    def _environment(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": self._key, "ROOT_SECRET_KEY": self.secret, "VGW_REGION": REGION}


class MotoServer(S3Server):
    """moto; it does not look at signatures, and forgets everything when it ends."""

    name: ClassVar[str] = "moto"

    def _command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", __spec__.name, str(self.port)]

    def _environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}


def main() -> None:
    """Serve moto's S3 on a port; one request at a time, since two at once could both find an object missing."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))  # a slow client holds up nobody
        with lock:
            return moto(environ, start_response)

    make_server("127.0.0.1", int(sys.argv[1]), serve, threaded=True).serve_forever()


if __name__ == "__main__":
    main()
