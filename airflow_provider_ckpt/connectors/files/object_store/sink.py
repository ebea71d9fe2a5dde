"""Control side of a files sink in an object store: check the prefix, raise the fence, and read receipts."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.foreign_files import refuse_foreign_files
from airflow_provider_ckpt.connectors.files.missing_files import describe_missing_files
from airflow_provider_ckpt.connectors.files.object_store.fence import fence
from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.publication import find_missing_files, roll_forward, sweep
from airflow_provider_ckpt.connectors.files.object_store.version import ObjectFilesVersion
from airflow_provider_ckpt.connectors.files.visible_files_sink import VisibleFilesSink
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import (
    batches_without_rows,
    find_loss,
)
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ReceiptsUnreadableError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt


class ObjectFilesSink(VisibleFilesSink):
    """Control side of a files sink below a prefix of an object store; see :class:`Sink`.

    :param pipeline: ``sink.path`` is the prefix's URL
    :param connection: the object store's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._layout = ObjectLayout.of(pipeline, connection, context)
        super().__init__(pipeline, self._layout, self._layout.prefix)
        self._receipts = ReceiptChain(self._layout)
        self._reported_loss = False

    @property
    def location(self) -> str:
        """Address of the prefix, such as ``files+s3://bucket/orders``; see :attr:`Sink.location`."""
        return f"files+{self._layout.prefix.uri}"

    def check(self) -> None:
        """Raise an error if the prefix is not writable or has foreign objects; see :meth:`Sink.check`.

        Foreign objects are those of another writer or in another format. A store that ignores the conditions of
        requests, such as ``If-None-Match``, is an error too.
        """
        prefix = self._layout.prefix
        prefix.check_writable("sink.path")
        refuse_foreign_files(self._names_to_check(), self._layout.format, place=prefix, in_store=True)

    def _names_to_check(self) -> Sequence[str]:
        """Return the names of the objects that :meth:`check` looks at.

        Before the first fence, the result has all objects below the prefix; later the objects of the newest commit, or
        none if the receipts of this commit cannot be read.

        A prefix to which this sink has written for a long time may have too many objects to list them in each run.
        """
        version = ObjectFilesVersion(self._layout)
        if version.epoch == 0:
            return list(self._layout.prefix.names())
        try:
            return [entry.file for entry in self._receipts.newest(version.head) if entry.file is not None]
        except ReceiptsUnreadableError:
            return []  # claims() reports unreadable receipts

    def claims(self) -> Claims:
        """Return this ledger's fence, all ledgers with a fence for the pipeline, the target's id, and evidence of loss.

        The evidence is a sentence that says which receipts or objects with delivered rows are gone, or that the sink
        was set back; None if there is no such evidence. See :meth:`Sink.claims`.
        """
        version = ObjectFilesVersion(self._layout)
        loss = find_loss(version, self._receipts)
        self._reported_loss = loss is not None
        evidence = loss.message if loss is not None else version.set_back
        evidence = evidence or describe_missing_files(self._missing_files(version), "object", self._layout.prefix)
        return Claims(version.epoch, self._layout.ledgers(), version.target, evidence)

    def fence(self, epoch: int) -> None:
        """Shut out all older epochs, then publish or remove the objects that they have staged; see :meth:`Sink.fence`.

        If :meth:`claims` or :meth:`receipts` of this object reported a loss of receipts before, the caller continues
        only because a user accepted that loss, so the fence accepts it, too.

        :param epoch: the new epoch
        :raises FencedError: if the fence is at a newer epoch
        """
        contention = CommitRetries(self._pipeline, str(self._layout.prefix))
        head = fence(self._layout, self._receipts, epoch, contention, accepting=self._reported_loss)
        sweep(self._layout, self._receipts, head, epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts that the ledger does not know yet, after publishing staged objects of committed batches.

        See :meth:`Sink.receipts`.
        """
        head = ObjectFilesVersion(self._layout).head
        try:
            roll_forward(self._layout, self._receipts, head)
            yield from self._receipts.unknown_to(head, known)
        except ReceiptsUnreadableError:
            self._reported_loss = True
            raise

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches whose receipt is missing or unreadable, or whose object is gone.

        With ``sink.files_may_go: true``, a missing object does not count. See :meth:`Sink.batches_without_receipt`.
        """
        version = ObjectFilesVersion(self._layout)
        missing = set(batches_without_rows(version, self._receipts, keys))
        if not self._layout.files_may_go:
            found = self._readable(version, [key for key in keys if key not in missing])
            missing |= {entry.receipt.key for entry in find_missing_files(self._layout, found)}
        return [key for key in keys if key in missing]

    def _open_file(self, name: str) -> io.BytesIO:
        return io.BytesIO((self._layout.prefix / name).read() or b"")

    def _missing_files(self, version: ObjectFilesVersion) -> Sequence[CommittedReceipt]:
        """Return those receipts of the newest commit whose objects are gone; none with ``sink.files_may_go: true``.

        :param version: the newest state of the sink
        """
        if self._layout.files_may_go:
            return []
        return find_missing_files(self._layout, self._receipts.newest(version.head))

    def _readable(self, version: ObjectFilesVersion, keys: Sequence[BatchKey]) -> list[CommittedReceipt]:
        found: list[CommittedReceipt] = []
        try:
            found.extend(self._receipts.find(version.head, keys))
        except ReceiptsUnreadableError:
            return found
        return found
