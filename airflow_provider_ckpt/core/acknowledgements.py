"""Resolve batches by their receipts, and move the checkpoint over resolved batches (semantics, sections 1 and 2).

A second receipt of a batch, or a receipt of an unknown batch, changes no batch; it is only recorded as an event.
"""

from __future__ import annotations

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, Batch, BatchState
from airflow_provider_ckpt.core.checkpoint import next_checkpoint
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.tickets import Event


class AcknowledgingPartition(PartitionView):
    """A partition that resolves its batches by receipts and moves its checkpoint over them."""

    @property
    def pending_acks(self) -> dict[int, Batch]:
        """Resolved batches that the checkpoint cannot pass yet, because a batch before them is unresolved; by seq."""
        return {seq: b for seq, b in self.batches.items() if b.state in RESOLVED}

    def ack(self, receipt: Receipt, *, advance: bool = True) -> list[Event]:
        """Resolve a batch by its receipt, whose verdict determines the batch's state, such as ``delivered``.

        A second receipt of the batch changes nothing and is recorded as the event ``ack_duplicate``. A receipt of a
        batch that is unknown, superseded or was never started changes nothing either, and is recorded as
        ``ack_spurious``.

        :param receipt: the sink's receipt
        :param advance: whether to move the checkpoint; False if the caller calls :meth:`advance` after several receipts
        :return: the events for the audit log
        :raises LedgerStateError: if the receipt's range differs from the batch's; the caller passes such a receipt to
            :func:`.reconcile.import_receipts` instead
        """
        seq = receipt.key.seq
        batch = self.batches.get(seq)
        if batch is None or receipt.key.generation != self.generation:
            below = receipt.range.end <= self.committed and seq < self.next_seq
            return [self._event("ack_duplicate" if below else "ack_spurious", seq)]
        if batch.state in RESOLVED and batch.state is not BatchState.SENT:
            return [self._event("ack_duplicate", seq)]
        if batch.state is BatchState.SUPERSEDED or not batch.started:
            return [self._event("ack_spurious", seq)]
        if batch.range != receipt.range:
            raise LedgerStateError(
                f"the receipt's range {receipt.range} is not the batch's {batch.range}", batch=self._name(seq)
            )
        self.batches[seq] = batch.resolved(receipt)
        event = self._event(
            "acked",
            seq,
            verdict=receipt.verdict.value,
            counts=receipt.counts.to_json(),
            range=[receipt.range.start, receipt.range.end],
        )
        return [event, *(self.advance() if advance else [])]

    def advance(self) -> list[Event]:
        """Move the checkpoint over the resolved batches that follow it without a gap, and remove them from ``batches``.

        The checkpoint stops at the first unresolved batch and at the cancellation watermark. The removed batches are
        appended to the list ``passed``; the ledger merges the receipts of the batches in this list.

        :return: the event ``checkpoint`` with the positions before and after; empty if the checkpoint does not move
        """
        committed = next_checkpoint(self.committed, self.batches)
        if committed == self.committed:
            return []
        before, self.committed = self.committed, committed
        self.passed += [b for b in self.batches.values() if b.state in RESOLVED and b.range.end <= committed]
        self.batches = {seq: b for seq, b in self.batches.items() if b.state in BLOCKING or b.range.end > committed}
        return [self._event("checkpoint", None, before=before, after=committed)]
