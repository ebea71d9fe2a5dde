"""Paths and file names of the files sink in its target directory.

Visible: ``ckpt-<partition>-<marker>-<epoch>-<random>.<format>``, one file a batch. Hidden, in
``_ckpt/<ledger>/<pipeline>/``: ``epochs/<epoch>/`` (see ``fence.py``), ``receipts/`` and ``bundles/`` (see
``receipts.py``), ``staged/`` (see ``staging.py``), ``replays/`` and ``files/`` (lists of source files). The file
``_ckpt/target`` contains the directory's id. Dead letters are stored beside the target directory.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_files import DeadLetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.files.connector import FilesSinkSection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import BOOKKEEPING_DIRECTORY, escape, local_path, unescape
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.stored_file_lists import StoredFileLists
from airflow_provider_ckpt.core.batch_key import BatchKey

DATA_PREFIX = "ckpt-"
"""Prefix of the names of visible files, those with the rows of a batch for readers of the directory."""

_STAGED_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class FilesLayout:
    """Paths of one pipeline and ledger in one target directory.

    :param directory: the target directory
    :param ledger: id of the ledger
    :param pipeline: name of the pipeline
    :param format: format of the visible files, which is also their file name extension
    :param files_may_go: ``sink.files_may_go``: whether readers may remove visible files
    """

    directory: Path
    ledger: str
    pipeline: str
    format: str
    files_may_go: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> FilesLayout:
        """Return the layout for the directory that a pipeline names.

        :param pipeline: ``sink.path`` names the directory
        :param connection: the Airflow connection, whose path is prefixed to a relative ``sink.path``; None if the
            pipeline names none
        :param context: ids of the ledger and the pipeline
        """
        sink = FilesSinkSection.of(pipeline)
        path = local_path(sink.path, "sink.path", connection)
        return cls(path, context.ledger, context.pipeline, sink.format, sink.files_may_go)

    @property
    def epochs(self) -> Path:
        """Directory in which receipts are written before they are claimed, with one subdirectory for each epoch."""
        return self._pipeline_directory / "epochs"

    @property
    def receipts(self) -> Path:
        """Directory of the markers: files with one batch's receipt each, until they are merged into a bundle.

        See ``receipts.py``.
        """
        return self._pipeline_directory / "receipts"

    @property
    def bundles(self) -> Path:
        """Directory of the bundles, which contain the receipts of past epochs."""
        return self._pipeline_directory / "bundles"

    @property
    def staged(self) -> Path:
        """Directory of the staged files: hidden files with rows of batches, until they become visible."""
        return self._pipeline_directory / "staged"

    def staged_file(self, name: str) -> Path:
        """Return the path of a staged file: the hidden file that later becomes visible under the given name.

        The path has another extension, so a reader's pattern for the format does not match it.

        :param name: name of the visible file
        """
        return self.staged / f"{name}{_STAGED_SUFFIX}"

    def staged_names(self) -> list[str]:
        """Return the names under which the staged files will become visible."""
        return [path.stem for path in self.staged.iterdir()] if self.staged.is_dir() else []

    def visible_names(self) -> set[str]:
        """Return the names of all visible files, which contain rows for readers, including other pipelines' files."""
        entries = self.directory.iterdir() if self.directory.is_dir() else ()
        return {entry.name for entry in entries if entry.name.startswith(DATA_PREFIX)}

    @property
    def identity(self) -> Path:
        """File with the directory's unique id, which all pipelines in the directory share."""
        return self.directory / BOOKKEEPING_DIRECTORY / "target"

    @property
    def replays(self) -> ReplayFiles:
        """The stored replays of the pipeline: lists of the dead letters that side partitions send again."""
        return ReplayFiles(LocalLocation(self._pipeline_directory / "replays"), self.pipeline)

    @property
    def lists(self) -> StoredFileLists:
        """The lists of the pipeline's discovered source files, stored in the sink too in case the ledger is lost."""
        return StoredFileLists(LocalLocation(self._pipeline_directory / "files"), self.pipeline)

    @property
    def dead_letters(self) -> DeadLetterFiles:
        """Dead letter files of the pipeline, which lie beside the target directory."""
        return DeadLetterFiles(LocalLocation(self.directory), self.ledger, self.pipeline)

    def ledgers(self) -> frozenset[str]:
        """Return the ids of all ledgers that have raised a fence for this pipeline in this directory."""
        own = self.directory / BOOKKEEPING_DIRECTORY
        entries = own.iterdir() if own.is_dir() else ()
        return frozenset(unescape(ledger.name) for ledger in entries if (ledger / escape(self.pipeline)).is_dir())

    def new_file(self, key: BatchKey, epoch: int) -> str:
        """Return a unique name for the visible file with a batch's rows; :func:`parse_file_name` parses it.

        :param key: the batch
        :param epoch: epoch of the run
        """
        partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
        return f"{DATA_PREFIX}{partition}-{marker_name(key)}-{epoch}-{secrets.token_hex(8)}.{self.format}"

    @property
    def _pipeline_directory(self) -> Path:
        return self.directory / BOOKKEEPING_DIRECTORY / escape(self.ledger) / escape(self.pipeline)


def marker_name(key: BatchKey) -> str:
    """Return the name of a batch's marker, the file with its receipt; it is unique, and short for any partition name.

    :param key: key of the batch
    """
    return f"{key.generation}-{key.seq:08d}-{sha256(key.partition.encode()).hexdigest()[:32]}"


def parse_file_name(file: str) -> tuple[str, int]:
    """Return two parts of a visible file's name: the name of its batch's marker (:func:`marker_name`), and the epoch.

    :param file: name of a visible file, also of one that is still staged
    """
    generation, seq, partition, epoch, _ = file.rsplit("-", 5)[1:]
    return f"{generation}-{seq}-{partition}", int(epoch)
