"""Where the delta sink keeps things, and by which names its transactions go.

Inside the table: data files ``ckpt-*.parquet``, and ``_ckpt/<ledger>/<pipeline>/`` with ``fence/<epoch>`` and
``receipts/<number>.json``, ``replays/<partition>.json`` (a leading underscore keeps it out of every VACUUM). Beside it
are the dead letters (see ``files/letters.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from airflow_provider_ckpt.connectors.files.letters import LetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.files.local import escape, unescape
from airflow_provider_ckpt.core.batch import BatchKey

OWN = "_ckpt"
DATA_PREFIX = "ckpt-"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and application ids of one pipeline of one ledger at one table."""

    table: Path
    ledger: str
    pipeline: str

    @property
    def epoch_app(self) -> str:
        """Application id whose version is the epoch; every commit of ours carries it."""
        return f"{self.ledger}:{self.pipeline}"

    @property
    def receipts_app(self) -> str:
        """Application id whose version is the number of the newest receipt node."""
        return f"{self.ledger}:{self.pipeline}:receipts"

    @property
    def fences(self) -> Path:
        """Directory of empty files, each named by an epoch that was fenced."""
        return self._own / "fence"

    def node(self, number: int) -> Path:
        """The file of a receipt node."""
        return self._own / "receipts" / f"{number:020d}.json"

    @property
    def replays(self) -> ReplayFiles:
        """Which dead letters the side partitions send once more."""
        return ReplayFiles(self._own / "replays", self.pipeline)

    def ledgers(self) -> frozenset[str]:
        """Every ledger that ever fenced this pipeline here."""
        own = self.table / OWN
        here = own.iterdir() if own.is_dir() else ()
        return frozenset(unescape(ledger.name) for ledger in here if (ledger / escape(self.pipeline)).is_dir())

    def new_data_file(self, key: BatchKey, attempt: int, epoch: int) -> Path:
        """A name for a batch's data file that nobody else ever uses."""
        partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
        name = f"{key.generation}-{partition}-{key.seq}-{attempt}-{epoch}-{uuid4().hex}"
        return self.table / f"{DATA_PREFIX}{name}.parquet"

    @property
    def letters(self) -> LetterFiles:
        """The dead letters beside the table."""
        return LetterFiles(self.table, self.ledger, self.pipeline)

    @property
    def _own(self) -> Path:
        return self.table / OWN / escape(self.ledger) / escape(self.pipeline)
