"""Detect that a files source would read the files that its own pipeline's sink writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from airflow_provider_ckpt.connectors.files.listing import CROSSES, HIDDEN, reached
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation

_ANY = "*"
_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


def matches(path: Path, output: WrittenFiles, *, follow_links: bool) -> bool:
    """Return whether a source's directory or pattern matches files that a sink writes.

    Directories are compared by device and inode, so that links and bind mounts are recognised.

    :param path: the source's directory, file or pattern; absolute. The path, or a pattern's deepest parent without
        wildcards, must exist
    :param output: files that the sink writes; their directory need not exist yet
    :param follow_links: whether the source follows symbolic links
    """
    if not isinstance(output.directory, LocalLocation):
        return False
    target = output.directory.path
    below = {
        (status.st_dev, status.st_ino): target.relative_to(ancestor).parts
        for ancestor in (target, *target.parents)
        if ancestor.exists()
        for status in [ancestor.stat()]
    }
    root_status = target.stat() if output.nested and target.is_dir() else None
    for directory, parts in reached(path, follow_links=follow_links):
        if not _overlap(parts[-1], output):
            continue
        status = directory.stat()
        names = below.get((status.st_dev, status.st_ino))
        if names is not None and _leads(parts[:-1], names, nested=output.nested):
            return True
        if root_status is not None and any(
            _same(parent, root_status.st_dev, root_status.st_ino) for parent in directory.parents
        ):
            return True
    return False


def matches_objects(parent: str, parts: Sequence[str], output: WrittenFiles) -> bool:
    """Return whether a source's prefix or pattern matches objects that a sink writes into the same bucket.

    :param parent: prefix without wildcards in which the pattern is matched
    :param parts: components of the pattern below that prefix
    :param output: objects that the sink writes
    """
    if not isinstance(output.directory, ObjectLocation) or not _overlap(parts[-1], output):
        return False
    above = parent.split("/") if parent else []
    names = output.directory.key.split("/") if output.directory.key else []
    if names[: len(above)] == above:
        return _leads(parts[:-1], names[len(above) :], nested=output.nested)
    return output.nested and above[: len(names)] == names


def _same(directory: Path, device: int, inode: int) -> bool:
    status = directory.stat()
    return (status.st_dev, status.st_ino) == (device, inode)


def _leads(parts: Sequence[str], names: Sequence[str], *, nested: bool) -> bool:
    """Return whether the directory components of a pattern match a given directory.

    :param parts: components of the pattern without the last one, which matches files
    :param names: components of the directory's path, relative to the directory in which the pattern is matched
    :param nested: whether the sink also writes into directories below the given one; then the result is also True if
        the pattern can match one of these
    """

    @cache
    def leads(part: int, name: int) -> bool:
        if name == len(names):
            return nested or all(rest == CROSSES for rest in parts[part:])
        if part == len(parts):
            return False
        visible = not names[name].startswith(HIDDEN)
        if parts[part] == CROSSES:
            return leads(part + 1, name) or (visible and leads(part, name + 1))
        return visible and fnmatchcase(names[name], parts[part]) and leads(part + 1, name + 1)

    return leads(0, 0)


def _overlap(pattern: str, output: WrittenFiles) -> bool:
    """Return whether there is a file name that a glob pattern matches and that the sink can give to a file.

    :param pattern: last component of the source's pattern
    :param output: files that the sink writes, with prefix and suffix of their names
    """
    wanted = _TOKEN.findall(pattern)
    written = [*output.prefix, None, *output.suffix]

    @cache
    def overlap(left: int, right: int) -> bool:
        if left == len(wanted):
            return all(dead_letter is None for dead_letter in written[right:])
        if right == len(written):
            return all(token == _ANY for token in wanted[left:])
        token, dead_letter = wanted[left], written[right]
        if token == _ANY or dead_letter is None:
            return overlap(left + 1, right) or overlap(left, right + 1)
        return fnmatchcase(dead_letter, token) and overlap(left + 1, right + 1)

    return overlap(0, 0)
