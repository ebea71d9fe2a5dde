"""Where the files sink keeps things at its target directory.

Visible: ``ckpt-<partition>-<marker>-<epoch>-<chance>.<format>``, one file a batch. Hidden, in
``_ckpt/<ledger>/<pipeline>/``: ``epochs/<epoch>/`` (see ``gate.py``), ``receipts/`` and ``bundles/`` (see
``receipts.py``), ``staged/`` (see ``staged.py``), ``replays/`` and ``files/`` (lists of source files). In
``_ckpt`` itself, ``target`` holds the directory's id. Beside the directory: dead letters.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.local.dead_letters import LetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.local.file_lists import KeptFileLists
from airflow_provider_ckpt.connectors.local.filesystem import OWN, escape, local_path, unescape
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.batch import BatchKey

DATA_PREFIX = "ckpt-"

_STAGED = ".tmp"


@dataclass(frozen=True, slots=True)
class FilesTarget:
    """Paths of one pipeline of one ledger at one directory.

    :param format: of the visible files, also the last part of their names
    :param files_may_go: whether readers take visible files away
    """

    directory: Path
    ledger: str
    pipeline: str
    format: str
    files_may_go: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> FilesTarget:
        """The target that a pipeline names."""
        path = local_path(pipeline.sink.path or "", "sink.path", connection)
        sink = pipeline.sink
        return cls(path, context.ledger, context.pipeline, sink.format or "", sink.files_may_go)

    @property
    def epochs(self) -> Path:
        """Directories of receipts that are being written, each named by its epoch."""
        return self._own / "epochs"

    @property
    def receipts(self) -> Path:
        """Directory of the markers: receipts by :func:`marker_of`, until they are bundled."""
        return self._own / "receipts"

    @property
    def bundles(self) -> Path:
        """Directory of the receipts of epochs that have ended."""
        return self._own / "bundles"

    @property
    def staged(self) -> Path:
        """Directory of files that are not visible yet."""
        return self._own / "staged"

    def staged_file(self, name: str) -> Path:
        """Where a file is until it is visible under this name; a pattern for the format's ending does not match it."""
        return self.staged / f"{name}{_STAGED}"

    def staged_names(self) -> list[str]:
        """The names that files which are not visible yet will have."""
        return [path.stem for path in self.staged.iterdir()] if self.staged.is_dir() else []

    def visible_names(self) -> set[str]:
        """The names of all visible files, those of other pipelines at the directory included."""
        here = self.directory.iterdir() if self.directory.is_dir() else ()
        return {entry.name for entry in here if entry.name.startswith(DATA_PREFIX)}

    @property
    def identity(self) -> Path:
        """A file that all pipelines at the directory share, with an id that no other directory has."""
        return self.directory / OWN / "target"

    @property
    def replays(self) -> ReplayFiles:
        """Which dead letters the side partitions send once more."""
        return ReplayFiles(self._own / "replays", self.pipeline)

    @property
    def lists(self) -> KeptFileLists:
        """Lists of source files."""
        return KeptFileLists(self._own / "files", self.pipeline)

    @property
    def letters(self) -> LetterFiles:
        """The dead letters beside the directory."""
        return LetterFiles(self.directory, self.ledger, self.pipeline)

    def ledgers(self) -> frozenset[str]:
        """Every ledger that ever fenced this pipeline here."""
        own = self.directory / OWN
        here = own.iterdir() if own.is_dir() else ()
        return frozenset(unescape(ledger.name) for ledger in here if (ledger / escape(self.pipeline)).is_dir())

    def new_file(self, key: BatchKey, epoch: int) -> str:
        """A name for a batch's visible file that nobody else ever uses; :func:`named_by` reads it."""
        partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
        return f"{DATA_PREFIX}{partition}-{marker_of(key)}-{epoch}-{secrets.token_hex(8)}.{self.format}"

    @property
    def _own(self) -> Path:
        return self.directory / OWN / escape(self.ledger) / escape(self.pipeline)


def marker_of(key: BatchKey) -> str:
    """The name of a batch's marker: its own, and short however long the partition's is."""
    return f"{key.generation}-{key.seq:08d}-{sha256(key.partition.encode()).hexdigest()[:32]}"


def named_by(file: str) -> tuple[str, int]:
    """The marker and the epoch in the name of a visible or staged file."""
    generation, seq, partition, epoch, _ = file.rsplit("-", 5)[1:]
    return f"{generation}-{seq}-{partition}", int(epoch)
