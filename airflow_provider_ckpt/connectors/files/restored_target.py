"""Detection of a files sink's directory that was replaced, or from which delivered files are gone.

The directory has an id, which is missing once it was emptied or created again. A receipt counts while its file exists:
a file that was removed before it became visible, or together with the directory, was lost. To bound the number of
files, a run checks only the newest receipts: those of the last runs that delivered anything.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress

from airflow_provider_ckpt.connectors.files.layout import FilesLayout
from airflow_provider_ckpt.connectors.files.receipts import ClaimedReceipt
from airflow_provider_ckpt.connectors.local.filesystem import io_error, sync_directory, write_durably


def read_identity(target: FilesLayout) -> str | None:
    """Return the directory's id, None if it has none.

    :raises IoError: if the file system fails
    """
    try:
        return target.identity.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_error(error, f"read {target.identity}") from error


def create_identity(target: FilesLayout) -> None:
    """Create the directory's id if it has none; if several processes do so at once, one wins.

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
    """Return the receipts whose files are neither visible nor staged; none if readers may remove files.

    :param target: the directory
    :param entries: receipts
    :raises IoError: if the file system fails
    """
    entries = [] if target.files_may_go else [entry for entry in entries if entry.file is not None]
    if not entries:
        return []
    try:
        staged = target.staged_names()  # first, since files move from here to the visible ones
        there = target.visible_names().union(staged)
    except OSError as error:
        raise io_error(error, f"list {target.directory}") from error
    return [entry for entry in entries if entry.file not in there]


def describe_gone_files(target: FilesLayout, receipts: Sequence[ClaimedReceipt]) -> str | None:
    """Return a sentence stating that delivered files are gone; None if none is."""
    if not receipts:
        return None
    files = "the file" if len(receipts) == 1 else f"{len(receipts)} files"
    return (
        f"{files} of delivered batches, such as {receipts[0].file} of {receipts[0].receipt.key}, "
        f"{'is' if len(receipts) == 1 else 'are'} gone from {target.directory} (where readers take files away, declare "
        "sink.files_may_go: true)"
    )
