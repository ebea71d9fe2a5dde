"""Settle a wave whose Spark executors or driver were lost before they could report (semantics, section 7).

A batch that kills its executor is found by letting it run alone. Its deaths are counted, up to the limit at which the
batch is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.decisions import Decision, HoldBatch
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.commands.settle import NewReceipts, apply_receipt, store_result
from airflow_provider_ckpt.ledger.types import Settlement
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


def settle_lost_wave(
    work: UnitOfWork,
    lanes: Sequence[Sequence[BatchKey]],
    receipts: Iterable[Receipt],
    *,
    alone: bool,
    limit: int,
    window: timedelta | None = None,
) -> Settlement:
    """Settle a wave whose Spark was lost before it could report (semantics, section 7, isolation).

    Batches with a receipt are resolved. In each lane the first batch without a receipt may have killed the executor, so
    its next attempt runs alone; if it ran alone already, another death is counted. The other batches are planned again.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param lanes: batches of the wave, each lane in order
    :param receipts: receipts read from the sink after the loss
    :param alone: whether the wave consisted of one batch that ran alone
    :param limit: number of deaths at which the batch is held
    :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the low
        watermark to the checkpoint
    :return: the new receipts, the batches that were held, and the checkpoints
    """
    fresh: NewReceipts = [(receipt, {}) for receipt in receipts if apply_receipt(work, receipt)]
    decisions: dict[BatchKey, Decision] = {}
    for lane in lanes:
        open_ones = [batch for key in lane if (batch := work.batch_in_flight(key)) is not None]
        for first, batch in zip([True] + [False] * len(open_ones), open_ones, strict=False):
            partition = work.partition(batch.key)
            ticket = partition.in_flight_ticket(batch.key.seq)
            work.ended(batch.key, AttemptOutcome.ABANDONED)
            if first and alone:
                work.events += partition.died_alone(ticket, limit=limit)
                if partition.batches[batch.key.seq].state is BatchState.HELD:
                    decisions[batch.key] = HoldBatch()
                continue
            planned, events = partition.abandon(ticket)
            work.events += events + (partition.run_alone(planned) if first else [])
    work.advance()
    store_result(work, "lost", fresh, window)
    return Settlement([receipt for receipt, _ in fresh], decisions, checkpoint=work.checkpoint)
