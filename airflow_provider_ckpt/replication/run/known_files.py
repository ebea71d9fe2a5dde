"""Keep a pipeline's list of source files in memory, since a run needs it for each of its plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_plan import SourceFile
    from airflow_provider_ckpt.ledger.ledger import Ledger


class KnownFiles:
    """Copy in memory of the list of source files that the ledger stores for a pipeline.

    The list only ever grows, so only the files that were added since are read to update the copy.

    :param ledger: the ledger
    :param pipeline: the pipeline's declaration; the list is always empty unless its source discovers files
    """

    def __init__(self, ledger: Ledger, pipeline: Pipeline) -> None:
        self._ledger = ledger
        self._pipeline = pipeline.name
        self._discovers_files = pipeline.source.discovers_files
        self._files: Sequence[SourceFile] = ()

    def read(self) -> Sequence[SourceFile]:
        """Return all files in the order of their discovery; only those added since the last call are read."""
        if not self._discovers_files:
            return ()
        more = self._ledger.files(self._pipeline, first=len(self._files))
        if more:
            self._files = [*self._files, *more]
        return self._files
