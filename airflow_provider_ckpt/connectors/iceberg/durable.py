"""Write an Iceberg table's files on a local file system so that they survive a power failure, and find those in Azure.

The Iceberg library loads the class of this module by name (property ``py-io-impl``) and writes the table's metadata
with it, to which a catalog then refers permanently. No other module imports this one.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from airflow_provider_ckpt.connectors.storage.filesystem import make_directory, sync_directory


class DurableFileIO(PyArrowFileIO):
    """File access for the Iceberg library that flushes each written local file to the disk, and leaves others as is.

    Azure's catalogs and engines name files by URLs such as ``abfss://container@account.dfs.core.windows.net/file``. The
    base class would take everything before the path for the container's name.
    """

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, bucket or container, and path of a file, which begins with the bucket or container.

        :param location: path or URL of the file
        :param properties: properties with which the files are opened
        """
        scheme, place, path = PyArrowFileIO.parse_location(location, properties)
        container, at, account = place.partition("@")
        return (scheme, container, container + path.removeprefix(place)) if at and account else (scheme, place, path)

    def new_output(self, location: str) -> PyArrowFile:
        """Return an object that writes a new file; a local file is flushed to the disk when it is closed.

        :param location: path or URL of the file
        """
        scheme, _, path = self.parse_location(location, self.properties)
        output = super().new_output(location)
        return _DurableFile(location, path, output._filesystem) if scheme == "file" else output


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> _Stream:
        return _Stream(Path(self._path), overwrite=overwrite)


class _Stream(io.BufferedWriter):
    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        make_directory(path.parent)
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_directory(self._path.parent)
