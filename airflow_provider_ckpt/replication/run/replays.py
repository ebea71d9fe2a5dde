"""Replay dead letters inside a run: add the dead letters to the lanes' tasks, and list each replay in the sink.

The dead letters of a replay are listed in the sink before any of them is sent, since the receipts of a replay only
number them. A ledger that has lost the replay, because it was restored from a backup, reads the list, and so does not
send these dead letters again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.dead_letter_lookup import count_by_error_type
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.replay_content import LostReplays, Replay
from airflow_provider_ckpt.spark.dead_letters.replay_reader import replay_detail

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_plan import PlannedBatch
    from airflow_provider_ckpt.core.receipt import Receipt
    from airflow_provider_ckpt.core.wave_messages import BatchTask
    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.run.run import Run


def add_dead_letters(run: Run, tasks: Sequence[BatchTask]) -> list[BatchTask]:
    """Return the tasks of replays, each with the dead letters that it has to send in its ``detail``.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param tasks: tasks of replays, whose positions are the numbers of dead letters
    """
    if not tasks:
        return []
    records = run.ledger.partitions(run.pipeline.name)
    replays = {name: Replay.from_json(records[name].state) for name in {task.key.partition for task in tasks}}
    return [
        replace(task, detail=replay_detail(list(replay.within(task.range)), newest_first=replay.newest_first))
        for task in tasks
        for replay in [replays[task.key.partition]]
    ]


def store_replays(run: Run, records: Mapping[str, PartitionRecord], planned: Iterable[PlannedBatch]) -> None:
    """Store in the sink the list of dead letters for each side partition that replays some.

    Call this before the batches are stored in the ledger, so that none of them has begun.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param records: the ledger's partitions
    :param planned: batches to be stored; only their side partitions that replay dead letters matter
    """
    for name in {batch.partition for batch in planned}:
        if BatchKey(records[name].partition.generation, name, 0).is_replay:
            run.sink.store_replay(name, Replay.from_json(records[name].state))


def find_lost_replays(run: Run, receipts: Iterable[Receipt]) -> LostReplays:
    """Return the replays that the ledger has lost: they have receipts in the sink and are unknown to the ledger.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param receipts: receipts of the sink that the ledger does not know
    """
    named = {receipt.key.partition: receipt.key.generation for receipt in receipts if receipt.key.is_replay}
    unknown = run.ledger.unknown_replays(run.pipeline.name, named) if named else []
    if not unknown:
        return LostReplays()
    replays = dict(run.sink.replays(unknown))
    sources = {dead_letters.source for replay in replays.values() for dead_letters in replay.dead_letters}
    return LostReplays(replays, count_by_error_type(run.sink, sources))
