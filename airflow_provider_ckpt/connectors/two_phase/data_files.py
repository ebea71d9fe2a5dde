"""Whether the files that a table names are there: a table whose files are gone still counts its rows by its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from airflow_provider_ckpt.connectors.local.filesystem import io_error


def damaged(files: Iterable[tuple[Path, int | None]]) -> Iterator[str]:
    """A sentence for each file that is missing, or not as long as the table says.

    :param files: path and size in bytes, or None where the table does not tell
    :raises IoError: if the file system does not tell
    """
    for path, size in files:
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            yield f"the file {path} is missing"
        except OSError as error:
            raise io_error(error, f"look at {path}") from error
        else:
            if size is not None and found != size:
                yield f"the file {path} holds {found} bytes, and the table says {size}"
