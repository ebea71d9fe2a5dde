"""HTTP requests and responses as objects, with functions to receive and to send them, for tests' servers and proxies.

Bodies are kept in memory as a whole.
"""

from __future__ import annotations

import http.client
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote

_ABORT = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends RST."""

_OF_THE_CONNECTION = frozenset({"connection", "expect", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    :param method: the method
    :param target: path and query, encoded
    :param headers: headers, with names in lower case
    :param body: the body
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def path(self) -> str:
        """Path and query, decoded."""
        return unquote(self.target)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    :param status: the status
    :param headers: headers, with names in lower case; for HEAD with the length that the body would have
    :param body: the body
    :param cut: whether only half of the body is sent, and then the connection is reset
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False


def ask(port: int, request: Request, without: Collection[str] = ()) -> Answer | None:
    """Return the answer of a server on this machine; None if there is none.

    :param port: the server's port
    :param request: the request
    :param without: names of headers that are left out
    """
    server = http.client.HTTPConnection("127.0.0.1", port)
    try:
        server.putrequest(
            request.method, request.target, skip_host="host" in request.headers, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            if name not in _OF_THE_CONNECTION and name not in without:
                server.putheader(name, value)
        server.putheader("Content-Length", str(len(request.body)))
        server.endheaders(request.body or None)
        response = server.getresponse()
        return Answer(response.status, _lower(response.getheaders()), response.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        server.close()


class HttpServer(ThreadingHTTPServer):
    """Serves on a free loopback port from the beginning of the context to its end, with a thread for each connection.

    :param answer: function that returns the answer to a request; None resets the connection
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[Request], Answer | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.port: int = self.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # the client has gone

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        answer = self.server.answer(Request(self.command, self.path, _lower(self.headers.items()), self._body()))
        if answer is not None:
            self._send(answer)
        if answer is None or answer.cut:
            self._reset()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        length = str(len(answer.body))
        if self.command == "HEAD":
            length = answer.headers.get("content-length", length)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        os.close(self.connection.detach())


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
