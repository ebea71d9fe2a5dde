"""Describe files of a table that are missing or truncated, although the table's log still counts their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from airflow_provider_ckpt.connectors.local.filesystem import io_error


def describe_damage(files: Iterable[tuple[Path, int | None]]) -> Iterator[str]:
    """Yield a sentence for each file that is missing, or whose size is not the recorded size.

    :param files: path and recorded size in bytes of each file; None if the table does not record sizes
    :raises IoError: if the file system fails
    """
    for path, size in files:
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            yield f"the file {path} is missing"
        except OSError as error:
            raise io_error(error, f"read the size of {path}") from error
        else:
            if size is not None and found != size:
                yield f"the file {path} has {found} bytes instead of the {size} that the table's metadata says"
