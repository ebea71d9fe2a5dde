"""All kinds of object stores for tests, each started at its first use."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from tests.services.azurite import Azurite
from tests.services.gcs import FakeGcs
from tests.services.object_store import ObjectStoreServer
from tests.services.s3 import MotoServer, VersityGateway

_KINDS: dict[str, type[ObjectStoreServer]] = {
    kind.name: kind for kind in (VersityGateway, MotoServer, Azurite, FakeGcs)
}


class ObjectStores:
    """The stores, which stop at the end of the context; ask for them in the thread that outlives them."""

    def __init__(self) -> None:
        self._started: dict[str, ObjectStoreServer] = {}
        self._running = ExitStack()

    @staticmethod
    def names() -> list[str]:
        """Return the names of all kinds."""
        return list(_KINDS)

    def get(self, name: str) -> ObjectStoreServer:
        """Return the store of a kind, running."""
        if name not in self._started:
            self._started[name] = self._running.enter_context(_KINDS[name]())
        return self._started[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
