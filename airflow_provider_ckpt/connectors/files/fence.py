"""Raise the fence of the files sink: remove the directories of older epochs, which claims of receipts need.

A writer writes a receipt as a file in ``epochs/<epoch>/`` and claims the batch by a hard link of that file to the
batch's marker (see ``receipts.py``). The fence creates the directory of the new epoch, then empties and removes the
directory of every older epoch. Linking a missing file fails, and so does writing into a missing directory, however long
a writer was delayed. So once the fence has returned, no receipt of an older epoch can be created.
"""

from __future__ import annotations

import errno
from pathlib import Path

from airflow_provider_ckpt.connectors import refuse_fenced_run
from airflow_provider_ckpt.connectors.files.layout import FilesLayout
from airflow_provider_ckpt.connectors.storage.filesystem import io_error, make_private_directory, sync_directory
from airflow_provider_ckpt.core.errors import FencedError


def newest_epoch(target: FilesLayout) -> int:
    """Return the epoch of the fence: the highest epoch that has a directory; 0 if none has one."""
    return max(_epochs(target), default=0)


def refuse_if_fenced(target: FilesLayout, epoch: int) -> None:
    """Raise an error if the fence is at a newer epoch than the run.

    :param target: paths of the sink
    :param epoch: epoch of the run
    :raises FencedError: naming both epochs
    """
    refuse_fenced_run.refuse_if_fenced(
        newest_epoch(target), epoch, f"the directory {target.directory}", target.pipeline
    )


def refuse_unless_current(target: FilesLayout, epoch: int) -> None:
    """Raise an error unless the fence is at the run's epoch.

    :param target: paths of the sink
    :param epoch: epoch of the run
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if the fence was not raised for the run, or was removed with the directory
    """
    refuse_fenced_run.refuse_unless_current(
        newest_epoch(target), epoch, f"the directory {target.directory}", target.pipeline
    )


def fence(target: FilesLayout, epoch: int) -> None:
    """Shut out all older epochs: once this returns, no receipt of an older epoch can be created.

    :param target: paths of the sink
    :param epoch: the new epoch
    :raises FencedError: if the fence is at a newer epoch
    :raises IoError: if the file system fails
    """
    refuse_if_fenced(target, epoch)
    own = target.epochs / str(epoch)
    try:
        for directory in (own, target.receipts, target.bundles, target.staged):
            make_private_directory(directory)
        for older in _epochs(target):
            if older < epoch:
                _remove_directory(target.epochs / str(older))
        sync_directory(target.epochs)
    except OSError as error:
        raise io_error(error, f"write the fence at {target.epochs}") from error
    try:
        refuse_if_fenced(target, epoch)
    except FencedError:
        _remove_directory(own)  # a newer fence was raised before this directory was created
        raise


def _remove_directory(directory: Path) -> None:
    """Empty and remove a directory into which other processes may still write.

    Do nothing if the directory does not exist.
    """
    while True:
        try:
            for file in directory.iterdir():
                file.unlink(missing_ok=True)
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return


def _epochs(target: FilesLayout) -> list[int]:
    if not target.epochs.is_dir():
        return []
    return sorted(int(entry.name) for entry in target.epochs.iterdir() if entry.name.isdecimal())
