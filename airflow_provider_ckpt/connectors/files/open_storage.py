"""Open the storage in which a files source's files lie, chosen by the scheme of ``source.path``."""

from __future__ import annotations

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.connector import FilesSourceSection
from airflow_provider_ckpt.connectors.files.local_files import LocalFiles
from airflow_provider_ckpt.connectors.files.object_files import ObjectFiles
from airflow_provider_ckpt.connectors.files.source_storage import SourceStorage
from airflow_provider_ckpt.connectors.storage.filesystem import local_path
from airflow_provider_ckpt.connectors.storage.schemes import is_object_url


def open_storage(pipeline: Pipeline, connection: Connection | None) -> SourceStorage:
    """Return the storage of a pipeline's files; nothing is requested yet.

    :param pipeline: ``source.path`` is a path, a ``file://`` URL, or the URL of an object store, also as a pattern
    :param connection: the object store's connection; for a relative path, a connection of type ``fs`` whose path is
        its base; None for the credentials of the environment, or for the working directory
    :raises ConfigError: if the path or URL cannot be used, or the connection does not fit it
    """
    source = FilesSourceSection.of(pipeline)
    if is_object_url(source.path):
        return ObjectFiles(source.path, connection, names_grow=source.names_grow)
    return LocalFiles(local_path(source.path, "source.path", connection), follow_links=source.follow_links)
