"""Where a two-phase sink keeps things at a table in a local or mounted directory.

Inside it: data files ``ckpt-*.parquet``, and ``_ckpt/<ledger>/<pipeline>/`` with ``receipts/<number>.json``,
``accepted``, ``replays/<partition>.json`` and ``files/<first>-<epoch>.json`` (a leading underscore hides it from
readers and clean-up). Beside it are the dead letters (see ``local/dead_letters.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from airflow_provider_ckpt.connectors.local.dead_letters import LetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.local.file_lists import KeptFileLists
from airflow_provider_ckpt.connectors.local.filesystem import OWN, escape
from airflow_provider_ckpt.core.batch import BatchKey

DATA_PREFIX = "ckpt-"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one pipeline of one ledger at one table."""

    table: Path
    ledger: str
    pipeline: str

    @property
    def own(self) -> Path:
        """The pipeline's bookkeeping."""
        return self.table / OWN / escape(self.ledger) / escape(self.pipeline)

    def node(self, number: int) -> Path:
        """The file of a receipt node."""
        return self.own / "receipts" / f"{number:020d}.json"

    @property
    def accepted(self) -> Path:
        """The file that holds the version of the table that the newest fence found in order, or that was accepted."""
        return self.own / "accepted"

    @property
    def replays(self) -> ReplayFiles:
        """Which dead letters the side partitions send once more."""
        return ReplayFiles(self.own / "replays", self.pipeline)

    @property
    def lists(self) -> KeptFileLists:
        """Lists of source files."""
        return KeptFileLists(self.own / "files", self.pipeline)

    @property
    def letters(self) -> LetterFiles:
        """The dead letters beside the table."""
        return LetterFiles(self.table, self.ledger, self.pipeline)


def new_stem(key: BatchKey, attempt: int, epoch: int) -> str:
    """How the names of a batch's data files begin: as nobody else's ever do."""
    partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
    return f"{DATA_PREFIX}{key.generation}-{partition}-{key.seq}-{attempt}-{epoch}-{uuid4().hex}"
