"""Detect that a files sink's directory was restored or replaced, or that delivered files are missing from it.

The directory has an id, which is lost when it is emptied or created again. A receipt is valid only while its file
exists, visible or staged. To limit the work, a run checks the files of the newest receipts only: those of the last runs
that delivered anything.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress

from airflow_provider_ckpt.connectors.files.layout import FilesLayout
from airflow_provider_ckpt.connectors.files.receipts import ClaimedReceipt
from airflow_provider_ckpt.connectors.storage.filesystem import io_error, sync_directory, write_durably


def read_identity(target: FilesLayout) -> str | None:
    """Return the target directory's id; None if it has none.

    :raises IoError: if the file system fails
    """
    try:
        return target.identity.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_error(error, f"read {target.identity}") from error


def create_identity(target: FilesLayout) -> None:
    """Create the target directory's id if it has none; several processes may do so at once.

    :raises IoError: if the file system fails
    """
    path = target.identity
    if path.exists():
        return
    prepared = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write_durably(prepared, f"{secrets.token_hex(16)}\n".encode(), exclusive=True)
        with suppress(FileExistsError):
            os.link(prepared, path)
        prepared.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise io_error(error, f"write {path}") from error


def receipts_without_file(target: FilesLayout, entries: Iterable[ClaimedReceipt]) -> Sequence[ClaimedReceipt]:
    """Return the receipts whose files are neither visible nor staged.

    If ``sink.files_may_go`` allows readers to remove files, a missing file is no loss, and the result is empty.

    :param target: paths of the sink
    :param entries: the receipts
    :raises IoError: if the file system fails
    """
    entries = [] if target.files_may_go else [entry for entry in entries if entry.file is not None]
    if not entries:
        return []
    try:
        # Staged names are listed before visible ones: a file published in between is in both lists, and not in neither.
        staged = target.staged_names()
        there = target.visible_names().union(staged)
    except OSError as error:
        raise io_error(error, f"list {target.directory}") from error
    return [entry for entry in entries if entry.file not in there]
