"""List the local files in a source's directory or matching its glob pattern; links are not followed by default.

Each directory is read once, and so is the status of each file that the caller does not know already: listing 100,000
files of one directory takes about a second.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape, has_magic
from pathlib import Path

from airflow_provider_ckpt.connectors.files.found_files import FoundFile, Listing
from airflow_provider_ckpt.connectors.files.recorded_file import LINK, etag_of, kind_of
from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.core.errors import ConfigError, SourceError

UNFINISHED_SUFFIXES = (".tmp", ".inprogress", ".part")
"""Suffixes of names of files that are not complete, and are not read."""

CROSSES = "**"
"""Component of a glob pattern that matches any number of directories."""

HIDDEN = (".", "_")
"""Prefixes of names of files and directories that are never read."""


def is_pattern(path: Path) -> bool:
    """Return whether a path is a glob pattern, and not an existing directory or file with wildcards in its name."""
    return has_magic(str(path)) and not path.exists()


def check_path(path: Path) -> None:
    """Raise an error if a source's file or directory, or a pattern's deepest parent without wildcards, is unreadable.

    :param path: the directory, pattern or file; absolute
    :raises SourceError: naming the path and the problem
    :raises ConfigError: if the pattern is malformed
    """
    existing = path
    if is_pattern(path):
        check_pattern(path.parts)
        existing = _static_parent(path)
    if not existing.exists():
        raise SourceError(f"there is no directory {existing}.", hint="Create it, or correct source.path.")
    status = existing.stat()
    if not stat.S_ISDIR(status.st_mode) and (existing != path or not stat.S_ISREG(status.st_mode)):
        raise SourceError(
            f"{existing} is a {kind_of(status) or 'file'}, not a {'file or ' if existing == path else ''}directory.",
            hint="Correct source.path.",
        )
    if not os.access(existing, os.R_OK | (os.X_OK if existing.is_dir() else 0)):
        raise SourceError(f"{existing} is not readable for this user.", hint="Grant read access to it.")


def list_files(path: Path, *, follow_links: bool = False, known: Collection[str] = ()) -> Listing:
    """List a directory (without its subdirectories), a pattern (``**`` matches any number of directories) or one file.

    :param path: the directory, pattern or file; absolute
    :param follow_links: whether to follow symbolic links to files and directories
    :param known: paths to skip without reading their status
    :return: the matching files, the matching paths that are left out because they are not regular files, and the errors
        of directories that could not be listed
    :raises SourceError: if the directory itself cannot be listed
    :raises IoError: if the file system fails
    """
    found = Listing(is_pattern(path))
    if found.pattern:
        parent, parts = _split(path)
        _Walk(found, known, follow_links=follow_links).search(str(parent), parts)
    elif path.is_dir():
        _Walk(found, known, follow_links=follow_links).search(str(path), ("*",))
        found.left_out.pop("directory", None)
    elif str(path) not in known:
        status = _status(str(path), follow_links=follow_links)
        if status is not None:
            found.files[str(path)] = _found(status)
    return found


def reached(path: Path, *, follow_links: bool) -> Collection[tuple[Path, Sequence[str]]]:
    """Return the directories in which files are searched, each with the components of the glob pattern below it.

    A directory counts as the pattern ``*`` in it, and a file as a pattern in its parent that matches only the file.

    If links are not followed, there is one pair: the pattern's static parent (its deepest parent without wildcards) and
    the components after it. If links are followed, there is a pair for each directory that :func:`list_files` would
    enter, with links resolved.

    :param path: the directory, pattern or file; absolute
    :param follow_links: as for :func:`list_files`
    :raises IoError: if the file system fails
    """
    if not is_pattern(path):
        return [(path, ("*",)) if path.is_dir() else (path.parent, (escape(path.name),))]
    parent, parts = _split(path)
    if not follow_links:
        return [(parent, parts)]
    walk = _Walk(Listing(), (), follow_links=True)
    walk.search(str(parent), parts)
    return [(Path(directory).resolve(), rest) for directory, rest in walk.visited]


class _Walk:
    """Recursive search through directories by the components of a pattern.

    :param found: listing to which the results are added
    :param known: paths to skip without reading their status
    :param follow_links: as for :func:`list_files`
    """

    def __init__(self, found: Listing, known: Collection[str], *, follow_links: bool) -> None:
        self._found = found
        self._known = known
        self._follow_links = follow_links
        self.visited: set[tuple[str, Sequence[str]]] = set()
        self._parents: list[str] = []

    def search(self, directory: str, parts: Sequence[str]) -> None:
        """Add to the listing the files below a directory that match the given components of the pattern.

        :param directory: the directory
        :param parts: components of the pattern below it
        """
        real = os.path.realpath(directory) if self._follow_links else directory
        if (directory, parts) in self.visited or (parts[0] == CROSSES and real in self._parents):
            return  # searched already, or a link to a parent directory
        self.visited.add((directory, parts))
        first, rest = parts[0], parts[1:]
        if first == CROSSES:
            self._parents.append(real)
            for entry in self._entries(directory):
                if self._is_directory(entry):
                    self.search(entry.path, parts)
            self._parents.pop()
            self.search(directory, rest)
            return
        for entry in self._entries(directory):
            if not fnmatchcase(entry.name, first):
                self._found.others += not rest and not entry.is_dir(follow_symlinks=False)
            elif not rest:
                self._add(entry)
            elif self._is_directory(entry):
                self.search(entry.path, rest)

    def _entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                yield from (entry for entry in entries if not entry.name.startswith(HIDDEN))
        except PermissionError:
            self._found.refused.append(
                SourceError(f"{directory} is not readable for this user.", hint="Grant read access to it.")
            )
        except FileNotFoundError:
            return  # removed since its parent was listed
        except OSError as error:
            raise io_error(error, f"list {directory}") from error

    def _is_directory(self, entry: os.DirEntry[str]) -> bool:
        try:
            leads_to_directory = entry.is_dir()
        except OSError:
            return False  # a circular link
        if leads_to_directory and entry.is_symlink() and not self._follow_links:
            self._found.leave_out(entry.path, LINK)
            return False
        return leads_to_directory

    def _add(self, entry: os.DirEntry[str]) -> None:
        if entry.name.endswith(UNFINISHED_SUFFIXES) or entry.path in self._known:
            return
        try:
            status = entry.stat(follow_symlinks=self._follow_links)
        except FileNotFoundError:
            return  # renamed since it was listed; the next discovery sees the new name
        except OSError as error:
            self._found.refused.append(
                SourceError(f"{entry.path!a}: {os.strerror(error.errno or 0)}.", hint="Repair or remove it.")
            )
            return
        kind = kind_of(status)
        if kind is None:
            self._found.files[entry.path] = _found(status)
        else:
            self._found.leave_out(entry.path, kind)


def _status(path: str, *, follow_links: bool) -> os.stat_result | None:
    try:
        status = Path(path).stat(follow_symlinks=follow_links)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_error(error, f"list {path}") from error
    return status if stat.S_ISREG(status.st_mode) else None


def _found(status: os.stat_result) -> FoundFile:
    return FoundFile(status.st_mtime_ns, status.st_size, etag_of(status))


def _static_parent(path: Path) -> Path:
    """Return the deepest parent directory of a pattern whose path contains no wildcard."""
    return next(parent for parent in path.parents if not has_magic(str(parent)))


def _split(pattern: Path) -> tuple[Path, Sequence[str]]:
    """Return the static parent of a pattern (its deepest parent without wildcards), and the components below it."""
    parent = _static_parent(pattern)
    parts = pattern.relative_to(parent).parts
    return parent, (*parts, "*") if parts[-1] == CROSSES else parts


def check_pattern(parts: Sequence[str]) -> None:
    """Raise an error if one of the components of a glob pattern is malformed.

    :param parts: the components
    :raises ConfigError: naming the component
    """
    for part in parts:
        if CROSSES in part and part != CROSSES:
            raise ConfigError(
                f"source.path: ** crosses directories only as a whole path component, not in {part}.",
                hint=f"Write {part.replace(CROSSES, '*')}, or **/ before it.",
            )
        opened = part.find("[")
        if opened >= 0 and "]" not in part[opened + 2 :]:
            raise ConfigError(
                f"source.path: the [ in {part} is never closed.",
                hint="Close it, as in [0-9]; write [[] for the character itself.",
            )
