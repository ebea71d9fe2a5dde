"""Keys of the objects of a files sink in an object store.

Visible: ``ckpt-<partition>-<generation>-<seq>-<epoch>-<random>.<format>``, one object a batch. Hidden, in
``_ckpt/<ledger>/<pipeline>/``: ``head``, the object with fence and newest receipt node; ``staged/<partition>/``, rows
that are not visible yet; and ``receipts/``, ``accepted``, ``replays/`` and ``files/``, which are described in
``two_phase/layout.py``. The object ``_ckpt/target`` has the target's id, which all pipelines there share.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import cast

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.connector import FilesSinkSection
from airflow_provider_ckpt.connectors.files.layout import DATA_PREFIX
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import BOOKKEEPING_DIRECTORY, escape, unescape
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout
from airflow_provider_ckpt.core.batch_key import BatchKey


@dataclass(frozen=True, slots=True)
class ObjectLayout(TableLayout):
    """Keys of the objects of one pipeline and ledger below one prefix.

    :param format: format of the visible objects, which is also the extension of their names
    :param files_may_go: ``sink.files_may_go``: whether readers may remove visible objects
    """

    format: str = ""
    files_may_go: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> ObjectLayout:
        """Return the layout for the prefix that a pipeline names.

        :param pipeline: ``sink.path`` is the prefix's URL
        :param connection: the object store's connection
        :param context: ids of the ledger and the pipeline
        """
        sink = FilesSinkSection.of(pipeline)
        prefix = open_location(sink.path, "sink.path", connection)
        return cls(prefix, context.ledger, context.pipeline, sink.format, sink.files_may_go)

    @property
    def prefix(self) -> ObjectLocation:
        """The prefix of the visible objects."""
        return cast("ObjectLocation", self.table)

    @property
    def head(self) -> ObjectLocation:
        """Object with the fence's epoch and the number of the newest receipt node."""
        return cast("ObjectLocation", self.pipeline_directory / "head")

    @property
    def staged(self) -> ObjectLocation:
        """Prefix of the staged objects: rows of batches that are not visible yet."""
        return cast("ObjectLocation", self.pipeline_directory / "staged")

    @property
    def identity(self) -> ObjectLocation:
        """Object with the target's unique id."""
        return self.prefix / f"{BOOKKEEPING_DIRECTORY}/target"

    def ledgers(self) -> frozenset[str]:
        """Return the ids of all ledgers that ever raised a fence for this pipeline at this prefix."""
        own = self.prefix / BOOKKEEPING_DIRECTORY
        ledgers = [name for name in own.names() if any((own / f"{name}/{escape(self.pipeline)}").names())]
        return frozenset(unescape(name) for name in ledgers)

    def new_file(self, key: BatchKey, epoch: int) -> str:
        """Return a unique name for a batch's visible object.

        :param key: the batch
        :param epoch: epoch of the run
        """
        partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
        return f"{DATA_PREFIX}{partition}-{key.generation}-{key.seq:08d}-{epoch}-{secrets.token_hex(8)}.{self.format}"

    def staged_file(self, key: BatchKey, name: str) -> ObjectLocation:
        """Return the location of a staged object: the hidden object that becomes visible under a name.

        :param key: the batch
        :param name: the name
        """
        return self.staged / f"{escape(key.partition)}/{name}"

    def staged_batches(self) -> dict[str, tuple[BatchKey, int]]:
        """Return the batch and the epoch of each staged object, by the name under which it will become visible."""
        found = {}
        for key in self.staged.objects():
            partition, _, name = key.partition("/")
            generation, seq, epoch, _ = name.rsplit("-", 4)[1:]
            found[name] = (BatchKey(int(generation), unescape(partition), int(seq)), int(epoch))
        return found
