"""Second phase of a files sink in an object store: commit the batches that the lanes of a wave have staged.

``two_phase/committer.py`` has the procedure; ``version.py`` has the commit itself.
"""

from __future__ import annotations

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.version import ObjectFilesVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter


class ObjectFilesOpener:
    """Opener that reads the pipeline's head object (fence and newest receipt node) again for each try of a commit.

    See :class:`~.two_phase.version.TableOpener`.

    :param layout: keys of the pipeline's objects
    """

    def __init__(self, layout: ObjectLayout) -> None:
        self._layout = layout

    @property
    def target(self) -> str:
        """URL of the prefix, for messages."""
        return str(self._layout.prefix)

    def open(self, schema: str | None) -> ObjectFilesVersion:  # noqa: ARG002  # files need no columns
        """Return the state of the sink as it is now.

        :param schema: not used, since files need no columns
        """
        return ObjectFilesVersion(self._layout)

    def close(self) -> None:
        """Do nothing: no connection is held open."""


def object_files_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> TableCommitter:
    """Return the committer of a pipeline whose files sink is in an object store.

    :param pipeline: ``sink.path`` is the URL of a prefix
    :param connection: the object store's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    return TableCommitter(pipeline, context, ObjectFilesOpener(ObjectLayout.of(pipeline, connection, context)))
