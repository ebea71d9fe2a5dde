"""Settle a wave whose Spark executors or driver were lost before they could report (semantics, section 7).

A wave is one Spark job with a lane of batches for each Spark task. Batches that may have killed their executor run
alone in their next attempt (``core/executor_killer.py``). The other batches are planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.executor_killer import suspects
from airflow_provider_ckpt.core.failure_decisions import Decision, HoldBatch
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
    unresolved = [key for lane in lanes for key in lane if work.batch_in_flight(key) is not None]
    suspected = set(suspects(lanes, set(unresolved)))
    for key in unresolved:
        partition = work.partition(key)
        ticket = partition.in_flight_ticket(key.seq)
        work.ended(key, AttemptOutcome.ABANDONED)
        if key in suspected and alone:
            work.events += partition.died_alone(ticket, limit=limit)
            if partition.batches[key.seq].state is BatchState.HELD:
                decisions[key] = HoldBatch()
            continue
        planned, events = partition.abandon(ticket)
        work.events += events + (partition.run_alone(planned) if key in suspected else [])
    work.advance()
    store_result(work, "lost", fresh, window)
    return Settlement([receipt for receipt, _ in fresh], decisions, checkpoint=work.checkpoint)
