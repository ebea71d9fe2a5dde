"""Which files a files source holds: found once, recorded in a durable order, and checked before every use.

A file must appear under its final name complete: write it elsewhere or as ``name.tmp``, then rename it. One that
changes after it was recorded is an error, not new data.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path

from airflow_provider_ckpt.connectors.files.local import io_error
from airflow_provider_ckpt.connectors.protocols import SourceFile
from airflow_provider_ckpt.core.errors import CkptError, SourceError

_UNFINISHED = (".tmp", ".inprogress", ".part")


def is_pattern(path: Path) -> bool:
    """Whether a path is a glob pattern and not a directory of that very name."""
    return has_magic(str(path)) and not path.is_dir()


def check_place(path: Path) -> None:
    """Fail clearly if the directory, the file, or the pattern's static parent is missing or unreadable.

    :raises SourceError: saying which
    """
    place = _static_parent(path) if is_pattern(path) else path
    if not place.exists():
        raise SourceError(f"there is no directory {place}.", hint="Create it, or correct source.path.")
    if not os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
        raise SourceError(f"{place} may not be read by this user.", hint="Grant read access to it.")


def discover(path: Path, known: Sequence[SourceFile]) -> list[SourceFile]:
    """Files that are there and not yet known, oldest first, to be appended after the known ones.

    :param path: directory (read without its subdirectories), glob pattern (``**`` crosses directories) or one file
    :param known: all files discovered before, in order
    :raises SourceError: if the place is missing or unreadable, or a file's name is not UTF-8
    """
    check_place(path)
    seen = {file.path for file in known}
    found: list[tuple[int, str, os.stat_result]] = []
    try:
        for candidate in _candidates(path):
            name = str(candidate)
            status = None if name in seen else _status(candidate)
            if status is not None and stat.S_ISREG(status.st_mode):
                _refuse_unnamable(name)
                found.append((status.st_mtime_ns, name, status))
    except PermissionError as error:
        raise SourceError(f"{error.filename} may not be read by this user.", hint="Grant read access to it.") from error
    except OSError as error:
        raise io_error(error, f"list {path}") from error
    files = []
    base = known[-1].base + known[-1].size if known else 0
    for ordinal, (_, name, status) in enumerate(sorted(found, key=lambda item: item[:2]), start=len(known)):
        files.append(SourceFile(ordinal, name, base, status.st_size, etag_of(status)))
        base += status.st_size
    return files


def _refuse_unnamable(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SourceError(
            f"the name of file {name!a} is not UTF-8, so the ledger cannot record it.", hint="Rename the file."
        ) from error


def etag_of(status: os.stat_result) -> str:
    """What changes when a local file does: modification time in ns, size, inode."""
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def unchanged(path: str, etag: str) -> bool:
    """Whether a recorded file is still what was recorded."""
    status = _status(Path(path))
    return status is not None and etag_of(status) == etag


def verify(path: str, etag: str, status: os.stat_result | None = None) -> None:
    """Fail if a recorded file is not what was recorded.

    :param status: of the open file; asked of the file system by default
    :raises SourceError: saying what was recorded and what is there
    """
    if status is None:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise unreadable(path, etag, error) from error
    if etag_of(status) != etag:
        raise SourceError(
            f"{path} changed after it was discovered: recorded {_bytes(etag)} bytes (etag {etag}), "
            f"now {status.st_size} bytes (etag {etag_of(status)}).",
            hint="Put the recorded file back; bring new data as a new file, renamed into place when complete.",
        )


def unreadable(path: str, etag: str, error: OSError) -> CkptError:
    """What to raise when a recorded file cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"{path} is gone; it was recorded with {_bytes(etag)} bytes (etag {etag}) and is still needed.",
            hint="Put the file back as it was, or rewind the pipeline past it.",
        )
    if isinstance(error, PermissionError):
        return SourceError(f"{path} may not be read by this user.", hint="Grant read access to it.")
    return io_error(error, f"read {path}")


def _bytes(etag: str) -> str:
    return etag.split("-")[1]


def _static_parent(path: Path) -> Path:
    """The deepest directory that a pattern names without a wildcard."""
    return next(parent for parent in path.parents if not has_magic(str(parent)))


def _candidates(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return (entry for entry in path.iterdir() if _wanted(entry, path))
    if not is_pattern(path):
        return [path]
    parent = _static_parent(path)
    pattern = str(path.relative_to(parent))
    matches = parent.glob(pattern + "/*" if pattern.endswith("**") else pattern)
    return {entry for entry in matches if _wanted(entry, parent)}


def _wanted(entry: Path, parent: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in entry.relative_to(parent).parts)
    return not hidden and not entry.name.endswith(_UNFINISHED)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None  # renamed since it was listed; the next discovery sees the new name
