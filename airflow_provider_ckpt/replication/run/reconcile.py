"""Reconcile the ledger with the sink's receipts: settle batches with a receipt, and end older attempts without one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.replication.run import file_lists
from airflow_provider_ckpt.replication.run.replays import find_lost_replays
from airflow_provider_ckpt.replication.setup import utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)


def reconcile(run: Run, records: Mapping[str, PartitionRecord] | None = None) -> None:
    """Settle batches that have a receipt in the sink, and end the open attempts of older epochs that have none.

    Receipts that the ledger does not know are imported (see ``core/reconcile.py``).

    :param run: the run, whose lease is held
    :param records: the ledger's partitions; None to read them from the ledger
    """
    pipeline = run.pipeline.name
    with run.step("reconcile"):
        receipts = list(run.receipts(records))
        file_lists.refuse_unlisted_receipts(run, receipts)
        lost_replays = find_lost_replays(run, receipts)
        found = run.ledger.reconcile(run.lease, receipts, now=utcnow(), window=run.window, lost_replays=lost_replays)
        run.settled([*found.acked, *found.imported])
    if found.acked or found.imported or found.fenced:
        log.info(
            "Reconciled %s: %d batches already had a receipt, %d receipts were unknown to the ledger, "
            "%d attempts of older epochs were fenced",
            pipeline,
            len(found.acked),
            len(found.imported),
            len(found.fenced),
        )
    for name, known in found.repeated_rewinds.items():
        log.warning(
            "%s: this ledger is older than a rewind of %s, whose receipts the sink holds. It continues in "
            "generation %d, which is assumed to begin at %d; if the rewind went further back, rewind again.",
            pipeline,
            name,
            *known,
        )
