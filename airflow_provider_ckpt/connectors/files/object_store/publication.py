"""Publish the rows of committed batches: copy each staged object to its final name, then remove the staged object.

Both steps have the same result when they are repeated, so any number of processes may do them any number of times.
Objects of attempts without a receipt are removed after the fence was raised, when these attempts cannot get a receipt
any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.core.errors import SinkError


def publish(layout: ObjectLayout, committed: Iterable[CommittedReceipt]) -> None:
    """Make the rows of committed batches visible; do nothing for a batch whose rows are visible already.

    :param layout: keys of the sink
    :param committed: receipts of the batches
    :raises SinkError: if an object was removed, so that its batch has a receipt and no rows; not if
        ``sink.files_may_go`` is set
    """
    for entry in committed:
        if entry.file is None:
            continue
        staged = layout.staged_file(entry.receipt.key, entry.file)
        visible = layout.prefix / entry.file
        if staged.copy_to(visible):
            staged.remove()
        elif not layout.files_may_go and visible.size() is None:
            raise SinkError(
                f"the object {entry.file} of {entry.receipt.key} was removed as soon as it was written: its receipt "
                f"exists, but its rows are not in {layout.prefix}.",
                pipeline=layout.pipeline,
                is_outage=True,
                hint=f"Keep clean-up jobs and lifecycle rules away from {layout.staged}, or declare "
                "sink.files_may_go: true if readers remove files. Then run again: the next run says how to have the "
                "batch sent again.",
            )


def roll_forward(layout: ObjectLayout, receipts: ReceiptChain, head: int | None) -> None:
    """Make the rows of committed batches visible whose objects are still staged.

    :param layout: keys of the sink
    :param receipts: receipts of the sink
    :param head: number of the newest receipt node; None if there is none yet
    """
    staged = layout.staged_batches()
    committed = receipts.find(head, {key for key, _ in staged.values()}) if staged else ()
    publish(layout, [entry for entry in committed if entry.file in staged])


def sweep(layout: ObjectLayout, receipts: ReceiptChain, head: int | None, epoch: int) -> None:
    """Make committed batches visible, and remove the other staged objects of older epochs.

    :param layout: keys of the sink
    :param receipts: receipts of the sink
    :param head: number of the newest receipt node; None if there is none yet
    :param epoch: epoch of the fence
    """
    roll_forward(layout, receipts, head)
    for name, (key, staged_by) in layout.staged_batches().items():
        if staged_by < epoch:
            layout.staged_file(key, name).remove()


def find_missing_files(layout: ObjectLayout, committed: Iterable[CommittedReceipt]) -> Sequence[CommittedReceipt]:
    """Return the receipts whose objects are neither visible nor staged; empty if ``sink.files_may_go`` is set.

    :param layout: keys of the sink
    :param committed: the receipts
    """
    if layout.files_may_go:
        return []
    gone = []
    for entry in committed:
        if entry.file is None:
            continue
        visible = layout.prefix / entry.file
        staged = layout.staged_file(entry.receipt.key, entry.file)
        # Another process may publish the object between the first two looks, so the third one decides.
        if visible.size() is None and staged.size() is None and visible.size() is None:
            gone.append(entry)
    return gone
