"""Begin attempts of batches: the ledger stores each attempt before any record of its batch is sent.

After a crash, the open attempts show which batches the sink may have received.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.ledger.store import dead_letter_index
from airflow_provider_ckpt.ledger.store import events as trail
from airflow_provider_ckpt.ledger.store import partitions as store
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


def begin_attempts(work: UnitOfWork, keys: Sequence[BatchKey], *, run: str, at_most_once: bool) -> list[Batch]:
    """Begin an attempt of each given batch, store the attempts, and return the batches in their new state.

    With at-most-once delivery this also resolves the batches as ``sent``.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param keys: the batches
    :param run: name of the run, stored with the attempts
    :param at_most_once: whether to resolve the batches as ``sent``, so that they are never sent a second time
    :raises LedgerStateError: if an attempt of one of the batches cannot begin; no attempt begins then
    """
    started: list[Batch] = []
    for key in keys:
        partition = work.partition(key)
        _, events = partition.begin(
            partition.planned_ticket(key.seq),
            epoch=work.lease.epoch,
            now=work.now,
            at_most_once=at_most_once,
            advance=False,
        )
        work.events += events
        started.append(partition.batches[key.seq])
    if at_most_once:
        dead_letter_index.resolve_at_most_once(work.connection, work.lease.pipeline, started, work.replays)
        work.advance()
    store.open_attempts(work.connection, work.lease.pipeline, started, run, work.now)
    work.write("begun", {"batches": len(started), "ranges": trail.merged_ranges(started), "run": run})
    return started
