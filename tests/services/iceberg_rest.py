"""Small Iceberg REST catalog for a test, in a thread; it stores its tables in another catalog.

Like every REST catalog it gets from the client only the changes and their conditions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableRequest, Table

from tests.services.iceberg import IcebergService

TOKEN = "t0p-secret"
STATUS: dict[type[Exception], int] = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
    ValueError: 400,
}


class RestCatalog:
    """The server.

    :param lake: where the tables are
    """

    def __init__(self, lake: IcebergService) -> None:
        self.lake = lake
        self.uri = ""
        self._losing = 0

    def lose_answers(self, status: int) -> None:
        """Carry out the next commit, and answer it with an error."""
        self._losing = status

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        """Return the server's answer to a request."""
        match method, path.partition("?")[0].strip("/").split("/")[1:]:
            case "GET", ["config"]:
                return 200, "{}"
            case "POST", ["namespaces"]:
                return self._do(lambda catalog: catalog.create_namespace(tuple(json.loads(body)["namespace"])))
            case "POST", ["namespaces", namespace, "tables"]:
                return self._do(lambda catalog: _created(catalog, namespace, body))
            case "GET", ["namespaces", namespace, "tables", name]:
                return self._do(lambda catalog: catalog.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                found = self._do(lambda catalog: _committed(catalog, namespace, name, body))
                if self._losing and found[0] == 200:
                    found, self._losing = (self._losing, _error("the answer was lost")), 0
                return found
        return 404, _error(f"{method} {path}")

    def _do(self, action: Callable[[Any], Any]) -> tuple[int, str]:
        with self.lake.catalog() as catalog:
            try:
                found = action(catalog)
            except tuple(STATUS) as error:
                kinds = type(error).__mro__
                return next(STATUS[kind] for kind in kinds if kind in STATUS), _error(str(error))
        if not isinstance(found, Table):
            return 200, "{}"
        response = TableResponse.model_validate(
            {"metadata-location": found.metadata_location, "metadata": found.metadata, "config": {}}
        )
        return 200, response.model_dump_json()


def _created(catalog: Any, namespace: str, body: bytes) -> Any:
    left_out = {"location": None, "partition-spec": None, "write-order": None}
    request = CreateTableRequest.model_validate({**left_out, **json.loads(body)})
    return catalog.create_table((namespace, request.name), request.table_schema, properties=request.properties)


def _committed(catalog: Any, namespace: str, name: str, body: bytes) -> Any:
    request = CommitTableRequest.model_validate_json(body)
    catalog.commit_table(catalog.load_table((namespace, name)), request.requirements, request.updates)
    return catalog.load_table((namespace, name))


def _error(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "Refused", "code": 0}})


@contextmanager
def rest_catalog(lake: IcebergService) -> Iterator[RestCatalog]:
    """A running server on a free port of the loopback."""
    catalog = RestCatalog(lake)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, text = catalog.answer(self.command, self.path, body) if allowed else (401, _error("who are you?"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        catalog.uri = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield catalog
        finally:
            server.shutdown()
            thread.join()
