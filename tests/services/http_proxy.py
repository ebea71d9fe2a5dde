"""HTTP proxy for tests in front of an object store: it counts requests, and gives wrong answers on request.

Unlike :mod:`tests.services.proxy`, it knows where a request ends. So it can let the server carry out a request, and
lose the response.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from tests.services.http_exchange import Answer, HttpServer, Request, ask

_CONDITIONS = frozenset({"if-match", "if-none-match", "x-goog-if-generation-match"})
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>as the test wanted</Message></Error>'


class Fault(StrEnum):
    """The ways in which a request fails."""

    ERROR = "error"  # 500; the server never gets the request
    SLOW_DOWN = "slow down"  # 503, as a store answers that has too much to do; the server never gets the request
    EXPIRED = "expired"  # 400, as S3 answers a token that has expired; the server never gets the request
    CUT = "cut"  # reset; the server never gets the request
    LOST = "lost"  # the server does it, and the client gets a reset
    LOST_ERROR = "lost error"  # the server does it, and the client is told 500
    TRUNCATED = "truncated"  # the client gets half of the answer's body, then a reset
    SLOW = "slow"  # the server does it at once, and the answer comes late


_NOT_DONE = (Fault.ERROR, Fault.SLOW_DOWN, Fault.EXPIRED, Fault.CUT)


@dataclass(slots=True)
class Rule:
    """Requests that fail.

    :param fault: how
    :param method: regular expression that matches the whole method
    :param path: regular expression, found in the decoded path with its query
    :param body: regular expression, found in the request's body
    :param nth: the first of the matching requests that fails, counted from 1
    :param times: number of requests that fail from then on; None for all
    :param seconds: delay of a slow answer
    :ivar struck: number of requests that have failed
    :ivar sprung: is set when the first one has
    """

    fault: Fault
    method: str = ".*"
    path: str = ""
    body: bytes = b""
    nth: int = 1
    times: int | None = 1
    seconds: float = 1.0
    struck: int = 0
    sprung: threading.Event = field(default_factory=threading.Event)
    _seen: int = 0

    def strikes(self, request: Request) -> bool:
        """Return whether this request fails."""
        if not (re.fullmatch(self.method, request.method) and re.search(self.path, request.path)):
            return False
        if not re.search(self.body, request.body):
            return False
        self._seen += 1
        if self._seen < self.nth or (self.times is not None and self.struck >= self.times):
            return False
        self.struck += 1
        self.sprung.set()
        return True


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the server's answer.

    :param method: the method
    :param path: decoded path with its query
    :param status: status of the server's answer; 0 if it was not asked, or did not answer
    :param sent: number of bytes of the request's body
    :param received: number of bytes of the answer's body
    :param fault: how the request was made to fail
    """

    method: str
    path: str
    status: int
    sent: int
    received: int
    fault: Fault | None


class HttpProxy:
    """Leads to a server on this machine, from the beginning of the context to its end.

    :param port: the server's port
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._storm: tuple[random.Random, float, Sequence[Fault]] | None = None
        self._ignored: frozenset[str] = frozenset()
        self._server = HttpServer(self._answer)
        self.port = self._server.port
        self.exchanges: list[Exchange] = []

    def fail(self, rule: Rule) -> Rule:
        """Let requests fail; of several rules that match a request, the oldest decides."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def storm(self, seed: int, rate: float, faults: Iterable[Fault]) -> None:
        """Let a share of all requests fail, until :meth:`calm`.

        :param seed: seed of the choice; the same requests in the same order fail in the same way
        :param rate: probability for each request
        :param faults: the faults to choose from
        """
        self._storm = (random.Random(seed), rate, tuple(faults))

    def ignore_conditions(self) -> None:
        """Remove conditions (``If-Match``, …) from requests, as if the server ignored them, until :meth:`calm`.

        A server that verifies signatures refuses such requests, since clients sign the conditions.
        """
        self._ignored = _CONDITIONS

    def calm(self) -> None:
        """Undo all of it, and forget the requests so far."""
        with self._lock:
            self._rules.clear()
            self.exchanges.clear()
            self._storm = None
            self._ignored = frozenset()

    def count(self, method: str = ".*", path: str = "") -> int:
        """Return the number of requests that match regular expressions, as those of :class:`Rule`."""
        with self._lock:
            return sum(bool(re.fullmatch(method, it.method) and re.search(path, it.path)) for it in self.exchanges)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def _answer(self, request: Request) -> Answer | None:
        fault, seconds = self._fault(request)
        answer = None if fault in _NOT_DONE else ask(self._target, request, without=self._ignored)
        status, received = (answer.status, len(answer.body)) if answer else (0, 0)
        with self._lock:
            self.exchanges.append(Exchange(request.method, request.path, status, len(request.body), received, fault))
        if fault in (Fault.ERROR, Fault.LOST_ERROR):
            return _error(500, "InternalError")
        if fault is Fault.SLOW_DOWN:
            return _error(503, "SlowDown")
        if fault is Fault.EXPIRED:
            return _error(400, "ExpiredToken")
        if fault is Fault.SLOW:
            time.sleep(seconds)
        if answer is None or fault is Fault.LOST:
            return None
        return replace(answer, cut=fault is Fault.TRUNCATED and bool(answer.body))

    def _fault(self, request: Request) -> tuple[Fault | None, float]:
        with self._lock:
            for rule in self._rules:
                if rule.strikes(request):
                    return rule.fault, rule.seconds
            if self._storm is not None:
                chance, rate, faults = self._storm
                if chance.random() < rate:
                    return chance.choice(faults), chance.random()
        return None, 0.0


def _error(status: int, code: str) -> Answer:
    return Answer(status, {"content-type": "application/xml"}, _ERROR.format(code).encode())
