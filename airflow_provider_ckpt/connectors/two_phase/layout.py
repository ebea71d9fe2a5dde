"""Name the files that a two-phase sink stores in and beside the directory (or object store prefix) of a table.

Inside the table's directory are data files ``ckpt-*.parquet``, and ``_ckpt/<ledger>/<pipeline>/`` with
``receipts/<number>.json``, ``accepted``, ``replays/<partition>.json``, ``files/<first>-<epoch>.json`` and
``schema/<number>-<partition>.json`` (the leading underscore hides it from readers and clean-up). The dead letters are
beside the table's directory (see ``connectors/dead_letter_files.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import uuid4

from airflow_provider_ckpt.connectors.dead_letter_files import DeadLetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.storage.filesystem import BOOKKEEPING_DIRECTORY, escape
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.stored_file_lists import StoredFileLists
from airflow_provider_ckpt.core.batch_key import BatchKey

DATA_PREFIX = "ckpt-"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Paths of one pipeline and ledger at one table.

    :param table: directory of the table
    :param ledger: id of the ledger
    :param pipeline: name of the pipeline
    """

    table: Location
    ledger: str
    pipeline: str

    @property
    def pipeline_directory(self) -> Location:
        """Directory of the pipeline's receipts, replays and file lists inside the table's directory."""
        return self.table / BOOKKEEPING_DIRECTORY / escape(self.ledger) / escape(self.pipeline)

    def node(self, number: int) -> Location:
        """Return the path of the file that stores a receipt node.

        :param number: number of the node
        """
        return self.pipeline_directory / "receipts" / f"{number:020d}.json"

    @property
    def accepted(self) -> Location:
        """File that records the version of the table that the newest fence found intact, or that a user accepted."""
        return self.pipeline_directory / "accepted"

    @property
    def replays(self) -> ReplayFiles:
        """The stored replays of the pipeline: lists of the dead letters that side partitions send again."""
        return ReplayFiles(self.pipeline_directory / "replays", self.pipeline)

    @property
    def lists(self) -> StoredFileLists:
        """The stored lists of discovered source files of the pipeline."""
        return StoredFileLists(self.pipeline_directory / "files", self.pipeline)

    @property
    def schema_versions(self) -> Location:
        """Directory of the receipts of schema versions that began before there was a table."""
        return self.pipeline_directory / "schema"

    @property
    def dead_letters(self) -> DeadLetterFiles:
        """The pipeline's dead letters in the directory beside the table."""
        return DeadLetterFiles(self.table, self.ledger, self.pipeline)


def new_file_prefix(key: BatchKey, attempt: int, epoch: int) -> str:
    """Return a unique prefix, which begins with ``ckpt-``, for the names of a batch's data files.

    :param key: the batch
    :param attempt: number of the attempt
    :param epoch: epoch of the attempt
    """
    partition = re.sub(r"[^A-Za-z0-9]+", "-", key.partition)[:80]
    return f"{DATA_PREFIX}{key.generation}-{partition}-{key.seq}-{attempt}-{epoch}-{uuid4().hex}"
