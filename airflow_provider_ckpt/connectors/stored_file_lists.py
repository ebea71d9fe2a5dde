"""Store lists of discovered source files as JSON files in a directory; see ``connectors/file_lists.py``."""

from __future__ import annotations

import json
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import SinkError


@dataclass(frozen=True, slots=True)
class StoredFileLists:
    """Lists of discovered source files of one pipeline and ledger, each in a file ``<first>-<epoch>.json``.

    ``<first>`` is the ordinal of the list's first source file, and ``<epoch>`` the epoch of the run that stored the
    list.

    :param directory: directory of the JSON files, which contains nothing else
    :param pipeline: name of the pipeline, for messages
    """

    directory: Location
    pipeline: str

    def write(self, files: FileList) -> None:
        """Store a list of source files durably, so that it survives a power failure.

        :raises IoError: if the file system or object store fails
        """
        path = self.directory / f"{files.first:012d}-{files.epoch}.json"
        path.write(json.dumps(files.to_json()).encode())

    def read(self, first: int) -> list[FileList]:
        """Return the stored lists whose first source file has the ordinal ``first`` or a greater one, in any order.

        :raises SinkError: if a list is damaged
        :raises IoError: if the file system or object store fails
        """
        path = self.directory
        try:
            wanted = [name for name in path.names() if name[:1].isdecimal() and int(name.partition("-")[0]) >= first]
            found = []
            for name in wanted:
                path = self.directory / name
                found.append(FileList.from_json(json.loads(path.read() or b"")))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"the list of source files in {path} is damaged.",
                pipeline=self.pipeline,
                hint="Restore the file from a backup.",
            ) from error
        return found
