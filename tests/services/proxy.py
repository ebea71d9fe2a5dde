"""TCP proxy for tests in front of a server: it resets, delays or refuses connections on request.

One thread serves all connections. A trap waits for certain bytes from the client, so that a connection breaks at a
known point.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar, cast

_ABORT = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends RST, and what was not sent yet is forgotten."""

_T = TypeVar("_T")


class Break(StrEnum):
    """The effect of a trap on the connection that springs it."""

    BEFORE = "before"  # reset; the server never gets what the client sent
    AFTER = "after"  # the server gets it and answers; the client gets a reset instead of the answer
    HOLD = "hold"  # the server never gets it, and the client waits


@dataclass(slots=True)
class Trap:
    """Waits for what one connection's client sends.

    :param texts: regular expressions, found one after the other, each in one piece of what is sent
    :param how: what happens then
    :param refuse: whether the proxy refuses all connections from then on
    :param lasting: whether it stays, for each connection that springs it
    """

    texts: tuple[bytes, ...]
    how: Break
    refuse: bool = False
    lasting: bool = False
    sprung: threading.Event = field(default_factory=threading.Event)


class _Pair:
    """A client's connection and the one that the proxy has opened to the server for it."""

    def __init__(self) -> None:
        self.sides: list[asyncio.Transport] = []
        self.trap: Trap | None = None
        self.seen = 0
        self.doomed = False
        self.held = False

    def reset(self) -> None:
        for side in self.sides:
            side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            side.abort()


class _Side(asyncio.Protocol):
    """One end of a pair: what it receives, the other end sends."""

    def __init__(self, proxy: Proxy, pair: _Pair, *, client: bool) -> None:
        self._proxy = proxy
        self._pair = pair
        self._client = client
        self._other: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._pair.sides.append(self.transport)
        if self._client:
            self._proxy.accepted(self, self._pair)

    def join(self, other: asyncio.Transport) -> None:
        self._other = other

    def data_received(self, data: bytes) -> None:
        assert self._other is not None
        if self._pair.doomed and not self._client:
            self._proxy.drop(self._pair)
        elif self._client and self._proxy.caught(self._pair, data):
            return
        else:
            self._other.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._proxy.forget(self._pair)
        for side in self._pair.sides:
            side.close()


class Proxy:
    """Listens from the beginning, so that a server can be told the port before it starts; see :meth:`lead_to`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._target = 0
        self._pairs: set[_Pair] = set()
        self._flowing = True
        self._refusing = False
        self._trap: Trap | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    def lead_to(self, port: int) -> Self:
        """Name the server's port on this machine."""
        self._target = port
        return self

    def reset(self) -> int:
        """Reset every connection; how many there were."""
        return self._do(self._reset)

    def pause(self) -> int:
        """Pass nothing on until :meth:`resume`; how many connections there were."""
        return self._do(lambda: self._flow(flowing=False))

    def resume(self) -> None:
        """Pass on what has been waiting, and all that follows."""
        self._do(lambda: self._flow(flowing=True))

    def refuse(self) -> None:
        """Reset every connection, and each new one at once, until :meth:`accept`."""
        self._do(self._refuse)

    def accept(self) -> None:
        """Take connections again."""
        self._refusing = False

    def trap(self, *texts: bytes, how: Break, refuse: bool = False, lasting: bool = False) -> threading.Event:
        """Break the first connection on which the client has sent texts that match these, in this order.

        :param texts: regular expressions
        :param refuse: refuse all connections from then on
        :param lasting: break every such connection, until :meth:`calm`
        :returns: is set when that has happened
        """
        trap = Trap(texts, how, refuse, lasting)
        self._trap = trap
        return trap.sprung

    def calm(self) -> None:
        """Undo all of it: no trap, no pause, no refusal."""
        self._trap = None
        self.accept()
        self.resume()

    def close(self) -> None:
        """End all of it."""
        self._do(self._reset)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def accepted(self, client: _Side, pair: _Pair) -> None:
        """A client has come: open a connection to the server for it."""
        assert client.transport is not None
        client.transport.pause_reading()
        self._pairs.add(pair)
        task = self._loop.create_task(self._connect(client, pair))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def caught(self, pair: _Pair, data: bytes) -> bool:
        """Return whether data that a client has sent must not be passed on."""
        if pair.held:
            return True
        trap = self._trap
        if trap is None:
            return False
        if pair.trap is not trap:
            pair.trap, pair.seen = trap, 0
        while pair.seen < len(trap.texts) and re.search(trap.texts[pair.seen], data, re.DOTALL):
            pair.seen += 1
        if pair.seen < len(trap.texts):
            return False
        if not trap.lasting:
            self._trap = None
        if trap.how is Break.BEFORE:
            self.drop(pair)
        pair.held = trap.how is Break.HOLD
        pair.doomed = trap.how is Break.AFTER
        if trap.refuse:
            self._refusing = True
        trap.sprung.set()
        return trap.how is not Break.AFTER

    def drop(self, pair: _Pair) -> None:
        """Reset a pair; and all others, where everything is refused from then on."""
        pair.reset()
        if self._refusing:
            self._reset()

    def forget(self, pair: _Pair) -> None:
        """A pair has ended."""
        self._pairs.discard(pair)

    async def _connect(self, client: _Side, pair: _Pair) -> None:
        assert client.transport is not None
        if self._refusing or not self._target:
            return pair.reset()
        server = _Side(self, pair, client=False)
        try:
            await self._loop.create_connection(lambda: server, "127.0.0.1", self._target)
        except OSError:
            return pair.reset()
        assert server.transport is not None
        client.join(server.transport)
        server.join(client.transport)
        if client.transport.is_closing():
            return pair.reset()
        if self._flowing:
            client.transport.resume_reading()
        else:
            server.transport.pause_reading()
        return None

    def _reset(self) -> int:
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def _refuse(self) -> int:
        self._refusing = True
        return self._reset()

    def _flow(self, *, flowing: bool) -> int:
        self._flowing = flowing
        for pair in self._pairs:
            if len(pair.sides) < 2:
                continue  # still being connected, which will see how things stand
            for side in pair.sides:
                if flowing:
                    side.resume_reading()
                else:
                    side.pause_reading()
        return len(self._pairs)

    def _do(self, step: Callable[[], _T]) -> _T:
        """Have the proxy's own thread do something."""

        async def run() -> _T:
            return step()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server: Any = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Side(self, _Pair(), client=True), sock=self._listener)
        )
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
