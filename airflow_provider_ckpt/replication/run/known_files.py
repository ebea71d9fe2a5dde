"""Cache of the source files that the ledger knows, which a run reads before each of its plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_plan import SourceFile
    from airflow_provider_ckpt.ledger.ledger import Ledger


class KnownFiles:
    """Cache of the source files of one pipeline in the ledger, to which files are only ever added.

    :param ledger: the ledger
    :param pipeline: name of the pipeline
    """

    def __init__(self, ledger: Ledger, pipeline: str) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._files: Sequence[SourceFile] = ()

    def read(self) -> Sequence[SourceFile]:
        """Return all files, in the order of their discovery; only those recorded since the last call are read."""
        more = self._ledger.files(self._pipeline, first=len(self._files))
        if more:
            self._files = [*self._files, *more]
        return self._files
