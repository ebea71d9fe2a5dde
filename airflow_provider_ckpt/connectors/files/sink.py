"""Control side of the files sink: check the target directory, raise the fence, and read receipts.

Each batch becomes one complete file. ``receipts.py``, ``fence.py`` and ``staging.py`` explain why each batch is
delivered exactly once. Receipts whose files are gone are removed here, and only behind the fence, so that no older
epoch can claim meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.fence import fence, newest_epoch
from airflow_provider_ckpt.connectors.files.foreign_files import refuse_foreign_files
from airflow_provider_ckpt.connectors.files.layout import FilesLayout
from airflow_provider_ckpt.connectors.files.missing_files import describe_missing_files
from airflow_provider_ckpt.connectors.files.receipts import ClaimedReceipt, FilesReceipts
from airflow_provider_ckpt.connectors.files.restored_target import (
    create_identity,
    read_identity,
    receipts_without_file,
)
from airflow_provider_ckpt.connectors.files.staging import roll_forward, sweep
from airflow_provider_ckpt.connectors.files.visible_files_sink import VisibleFilesSink
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt


class FilesSink(VisibleFilesSink):
    """Control side of a files sink in a directory of a local or mounted file system; see :class:`Sink`.

    :param pipeline: ``sink.path`` names the directory, which is created if it does not exist
    :param connection: the Airflow connection, whose path is prefixed to a relative ``sink.path``
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._target = FilesLayout.of(pipeline, connection, context)
        super().__init__(pipeline, self._target, LocalLocation(self._target.directory))
        self._receipts = FilesReceipts(self._target)

    @property
    def location(self) -> str:
        """Address of the directory, such as ``files:///data/orders``; see :attr:`Sink.location`."""
        return f"files://{self._target.directory}"

    def check(self) -> None:
        """Raise an error if the directory is not writable, or has foreign files; see :meth:`Sink.check`.

        Foreign files are those of another writer or in another format.
        """
        directory = self._target.directory
        for folder in (LocalLocation(directory), self._target.dead_letters.directory):
            folder.check_writable("sink.path")
        names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
        refuse_foreign_files(names, self._target.format, place=directory)

    def claims(self) -> Claims:
        """Return this ledger's fence, all ledgers with a fence for the pipeline, the directory's id, and lost batches.

        A batch counts as lost if it has a receipt and its file is gone. See :meth:`Sink.claims`.
        """
        target = self._target
        vanished = self._receipts_without_file()
        lost = frozenset(entry.receipt.key for entry in vanished)
        return Claims(
            newest_epoch(target),
            target.ledgers(),
            read_identity(target),
            describe_missing_files(vanished, "file", target.directory),
            lost,
        )

    def fence(self, epoch: int) -> None:
        """Shut out all older epochs; then publish or remove their staged files, and put their receipts into one file.

        A receipt of an older epoch is removed if the batch's file is gone, so that the batch can be delivered again. A
        run that learns of such a loss from :meth:`claims` calls this method only if a user has accepted the loss.

        :param epoch: the new epoch
        :raises FencedError: if the fence is at a newer epoch
        """
        fence(self._target, epoch)
        create_identity(self._target)
        sweep(self._target, self._receipts, epoch)
        lost = [entry.receipt.key for entry in self._receipts_without_file() if entry.receipt.epoch < epoch]
        if lost:
            self._receipts.retract(lost)
        self._receipts.bundle(epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts that the ledger does not know yet, after publishing staged files of claimed batches.

        A receipt of the last runs that delivered is left out if its file is gone. See :meth:`Sink.receipts`.
        """
        unknown = self._receipts.unknown_to(known)
        roll_forward(self._target, self._receipts)
        lost = {entry.receipt.key for entry in self._receipts_without_file()} if unknown else set()
        yield from (receipt for receipt in unknown if receipt.key not in lost)

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return the given batches that have no receipt or no file; see :meth:`Sink.batches_without_receipt`."""
        found = self._receipts.entries(keys)
        lost = {entry.receipt.key for entry in receipts_without_file(self._target, found.values())}
        return [key for key in keys if key not in found or key in lost]

    def _open_file(self, name: str) -> BinaryIO:
        return (self._target.directory / name).open("rb")

    def _receipts_without_file(self) -> Sequence[ClaimedReceipt]:
        """Return the receipts of the last runs that delivered (:meth:`FilesReceipts.newest`) whose files are gone."""
        return receipts_without_file(self._target, self._receipts.newest())
