"""Data classes for the result of listing a source's files in a file system or an object store."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_ckpt.connectors.files.recorded_file import LINK
from airflow_provider_ckpt.core.errors import SourceError


@dataclass(frozen=True, slots=True)
class FoundFile:
    """Status of a file that a listing contains.

    :param time: time of the last modification, in ns since 1970
    :param size: number of bytes
    :param etag: text that changes when the file is modified or replaced
    """

    time: int
    size: int
    etag: str


@dataclass(slots=True)
class Listing:
    """Files that match a files source's directory or glob pattern.

    :ivar pattern: whether the source is a glob pattern
    :ivar files: each matching regular file or object, by absolute path or URL, except the unchanged ones
    :ivar unchanged: URLs of objects that the ledger has recorded and whose size and etag are as recorded, or were not
        compared on request; empty for local files
    :ivar left_out: matching paths that are not regular files: their number and the first of them, by kind, such as
        ``directory``
    :ivar links: the matching paths that are symbolic links
    :ivar others: number of files that do not match the pattern
    :ivar refused: errors for paths that could not be listed
    """

    pattern: bool = False
    files: dict[str, FoundFile] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)
    others: int = 0
    refused: list[SourceError] = field(default_factory=list)

    def leave_out(self, path: str, kind: str) -> None:
        """Add a matching path that is not read to :attr:`left_out`, and to :attr:`links` if it is a symbolic link.

        :param path: the path
        :param kind: kind of the path, such as ``directory``
        """
        count, first = self.left_out.get(kind, (0, path))
        self.left_out[kind] = (count + 1, first)
        if kind == LINK:
            self.links.add(path)
