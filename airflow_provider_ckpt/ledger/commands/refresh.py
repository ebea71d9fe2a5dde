"""Commands of a refresh: begin a generation that reads all rows of a source, and hold the batch that publishes them."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_ckpt.core import apply_action, refresh
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.ledger.commands.apply_action import park_skipped, unfinished_replays
from airflow_provider_ckpt.ledger.commands.generations import record_generations
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.types import Lease

_ALL = Range(0, 2**63 - 1)


class RefreshCommands(Session):
    """Commands of a run that refreshes a partition."""

    def begin_refresh(self, lease: Lease, partition: str, extent: RefreshExtent, *, now: datetime, reason: str) -> int:
        """Begin a generation of a partition for a refresh, and return its number.

        Unfinished replays of the partition's dead letters are cancelled: the refresh reads their records again, and a
        replay that continued after the publication would deliver them twice.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param partition: id of the source partition
        :param extent: end of the positions that contain rows, and the snapshot of the source that all batches read
        :param now: time of the command
        :param reason: the reason, stored in the history of generations
        """
        with self._command(lease, now) as work:
            item = work.item(partition)
            replays = unfinished_replays(work, [(partition, _ALL)])
            events = refresh.begin(item.partition, generation=work.pipeline_state.generation + 1, reason=reason)
            work.pipeline_state.generation = max(work.pipeline_state.generation, item.partition.generation)
            events += apply_action.cancel_replays(work.pipeline_state, replays, reason)
            work.events += events
            record_generations(work, events)
            park_skipped(work, events)
            item.state = extent.to_state()
            detail = {"partition": partition, "generation": item.partition.generation, "rows_end": extent.rows_end}
            work.write("refresh_begun", {**detail, "reason": reason})
            return item.partition.generation

    def hold_publication(self, lease: Lease, key: BatchKey, *, now: datetime, reason: str) -> None:
        """Hold the batch that publishes a refresh, until a user releases it.

        When the user has released the batch, the refresh is published without a further question.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param key: the batch, which is planned
        :param now: time of the command
        :param reason: the reason, which the user sees
        """
        with self._command(lease, now, {key.partition: [key.seq]}) as work:
            partition, item = work.partition(key), work.item(key.partition)
            extent = RefreshExtent.of(item.state)
            assert extent is not None
            work.events += partition.hold(partition.planned_ticket(key.seq), reason=reason)[1]
            item.state = extent.with_held_publication().to_state()
            work.write("publication_held", {"batch": str(key), "reason": reason})
