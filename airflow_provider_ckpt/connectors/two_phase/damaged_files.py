"""Describe files of a table that are missing or truncated, although the table's log still counts their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_provider_ckpt.connectors.storage.location import Location


def describe_damage(files: Iterable[tuple[Location, int | None]]) -> Iterator[str]:
    """Yield a sentence for each file that is missing, or whose size differs from the recorded size.

    Each directory is listed only once if its files follow one another.

    :param files: path and recorded size in bytes of each file; the size is None if the table records none
    :raises IoError: if the file system or object store fails
    """
    directory, found = None, dict[str, int]()
    for path, size in files:
        if str(path.parent) != directory:
            directory, found = str(path.parent), dict(path.parent.sizes())
        if path.name not in found:
            yield f"the file {path} is missing"
        elif size is not None and found[path.name] != size:
            yield f"the file {path} has {found[path.name]} bytes instead of the {size} that the table's metadata says"
