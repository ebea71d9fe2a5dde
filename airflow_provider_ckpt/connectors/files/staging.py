"""Stage a batch's rows as a hidden, durable file, and publish it after the claim by renaming it into the directory.

The writer that claimed the batch renames the file. If that writer dies first, the next process that finds the batch's
marker (the file with its receipt) renames the staged file: a writer that retries the batch, a run that reads receipts,
or the fence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.files.formats import write_rows
from airflow_provider_ckpt.connectors.files.layout import FilesLayout, parse_file_name
from airflow_provider_ckpt.connectors.files.receipts import ClaimedReceipt, FilesReceipts
from airflow_provider_ckpt.connectors.storage.filesystem import io_error, sync_directory
from airflow_provider_ckpt.core.errors import ConfigError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa


def stage(target: FilesLayout, name: str, rows: pa.Table) -> None:
    """Write rows to a hidden file so that they survive a power failure; a failed write leaves no file.

    :param target: paths of the sink
    :param name: name under which the file will become visible
    :param rows: the rows
    :raises IoError: if the file system fails
    :raises ConfigError: if the format cannot store a column
    """
    path = target.staged_file(name)
    try:
        with path.open("xb") as file:
            write_rows(rows, target.format, file)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise io_error(error, f"write {path}") from error
    except ConfigError:
        path.unlink(missing_ok=True)
        raise


def discard(target: FilesLayout, name: str) -> None:
    """Remove a staged file that will never become visible; errors are ignored, since the next :func:`sweep` retries.

    :param target: paths of the sink
    :param name: name under which the file would have become visible
    """
    with suppress(OSError):
        target.staged_file(name).unlink()


def publish(target: FilesLayout, entry: ClaimedReceipt) -> None:
    """Make the rows of a claimed batch visible; do nothing if they are visible already.

    :param target: paths of the sink
    :param entry: the claimed receipt of the batch
    :raises SinkError: if the file was removed, so that the batch has a receipt and no rows
    :raises IoError: if the file system fails
    """
    if entry.file is None:
        return
    _rename_all(target, [entry.file])
    if not target.files_may_go and not (target.directory / entry.file).exists():
        raise SinkError(
            f"the file {entry.file} of {entry.receipt.key} was removed as soon as it was written: its receipt exists, "
            f"but its rows are not in {target.directory}.",
            pipeline=target.pipeline,
            is_outage=True,
            hint=f"Keep clean-up jobs away from {target.staged}, or declare sink.files_may_go: true if readers "
            "remove files. Then run again: the next run says how to have the batch sent again.",
        )


def roll_forward(target: FilesLayout, receipts: FilesReceipts) -> None:
    """Make the rows of all claimed batches visible, and remove the staged files of attempts that lost the claim.

    :param target: paths of the sink
    :param receipts: receipts of the sink
    :raises IoError: if the file system fails
    """
    _rename_all(target, list(_claimed_names(target, receipts)))


def sweep(target: FilesLayout, receipts: FilesReceipts, epoch: int) -> None:
    """Remove the staged files of older epochs whose batches have no receipt, after publishing those that have one.

    This must be called after the fence was raised: then no attempt of an older epoch can claim such a batch any more.
    Receipts are read only from the marker files, one for each batch of newer epochs. A batch whose receipt has been
    collected in a bundle (``receipts.py``) has no staged file any more, since it was published before.

    :param target: paths of the sink
    :param receipts: receipts of the sink
    :param epoch: epoch of the fence
    :raises IoError: if the file system fails
    """
    roll_forward(target, receipts)
    for name in target.staged_names():
        marker, staged_by = parse_file_name(name)
        if staged_by < epoch and receipts.find_by_marker(marker) is None:
            discard(target, name)


def _claimed_names(target: FilesLayout, receipts: FilesReceipts) -> Iterator[str]:
    for name in target.staged_names():
        entry = receipts.find_by_marker(parse_file_name(name)[0])
        if entry is not None and entry.file == name:
            yield name
        elif entry is not None:
            discard(target, name)


def _rename_all(target: FilesLayout, names: list[str]) -> None:
    try:
        for name in names:
            try:
                target.staged_file(name).rename(target.directory / name)
            except FileNotFoundError:
                continue  # renamed by another process already
        if names:
            sync_directory(target.directory)
    except OSError as error:
        raise io_error(error, f"write to {target.directory}") from error
