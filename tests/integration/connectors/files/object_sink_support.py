"""Support for tests with a prefix of an object store as target: files or a Delta table, as readers see them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.testing.sink_harness import StoredDeadLetter
from tests.services.object_store import ObjectStoreServer


class ObjectTarget:
    """A prefix of its own in a store.

    :param server: the store
    :param port: port of a proxy that leads to the store; None for the store itself
    """

    def __init__(self, server: ObjectStoreServer, port: int | None = None) -> None:
        self.server = server
        self.key = f"{uuid4().hex}/out"
        self.url = server.url(self.key)
        self.connection = server.connection(port)

    def pipeline(self, **sink: Any) -> Pipeline:
        """A pipeline that writes JSON lines to the prefix."""
        return Pipeline.model_validate(
            {
                "name": "flights",
                "source": {"type": "files", "path": "/nowhere"},
                "transform": {"decode": "json", "schema": "id bigint"},
                "sink": {"type": "files", "path": self.url, "connection": "lake", "format": "jsonl", **sink},
            }
        )

    def visible(self) -> dict[str, bytes]:
        """The objects that a reader of the prefix sees: hidden ones are left out."""
        found = self.server.objects(self.key)
        names = {key.removeprefix(f"{self.key}/"): data for key, data in found.items()}
        return {name: data for name, data in names.items() if not name.startswith(("_", "."))}

    def ids(self) -> list[int]:
        """The ids of all visible rows, sorted, with repetitions."""
        lines = (line for data in self.visible().values() for line in data.splitlines())
        return sorted(int(json.loads(line)["id"]) for line in lines)

    def remove(self, *keys: str) -> None:
        """Remove objects, as somebody else does."""
        import obstore

        obstore.delete(self.server.client(), list(keys))

    def hidden(self, part: str) -> list[str]:
        """Keys of the sink's own objects that contain a text."""
        return [key for key in self.server.keys(f"{self.key}/_ckpt") if part in key]

    def stored_dead_letters(self, receipts: Iterable[Receipt]) -> list[StoredDeadLetter]:
        """The dead letters beside the prefix that receipts name, by position."""
        counting = {(receipt.key.seq, receipt.epoch, receipt.attempt) for receipt in receipts}
        stored = self.server.objects(f"{self.key}.dead_letters")
        lines = [json.loads(line) for data in stored.values() for line in data.splitlines()]
        return sorted(
            (
                StoredDeadLetter(
                    line["seq"],
                    line["position"],
                    None if line["key_base64"] is None else base64.b64decode(line["key_base64"]),
                    None if line["value_base64"] is None else base64.b64decode(line["value_base64"]),
                    line["error_type"],
                )
                for line in lines
                if (line["seq"], line["epoch"], line["attempt"]) in counting
            ),
            key=lambda found: found.position,
        )
