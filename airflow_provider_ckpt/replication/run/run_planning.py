"""Plan the batches of a run and store them, and raise an error at the run's end if records could not be planned."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.replication.run import file_lists
from airflow_provider_ckpt.replication.run.late_records import unread_finder
from airflow_provider_ckpt.replication.run.plan import Planner
from airflow_provider_ckpt.replication.run.replays import store_replays
from airflow_provider_ckpt.replication.run.schema_versions import SchemaVersions

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_plan import Plan
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)


class RunPlanning:
    """Planning of the batches of one run.

    :param run: the run in progress
    :ivar more: whether the source may have more records than were planned
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.more = True
        self._refused: dict[str, CkptError] = {}

    def plan(self, skipped: Collection[BatchKey] = ()) -> int:
        """Plan batches for new records of the source, and store them in the ledger.

        No more is planned once the unresolved batches have ``consumer.max_in_flight`` records.

        :param skipped: batches that this run no longer begins; a pinned partition that has one gets no new batches
        :returns: number of batches that are planned and may begin now or later; 0 if the pipeline drains or is stopped
        """
        run = self._run
        with run.step("plan"):
            run.verify_source()
            records = run.ledger.partitions(run.pipeline.name)
            blocking = [batch for record in records.values() for batch in record.partition.blocking.values()]
            phases = {record.partition.phase for record in records.values()}
            if phases - {Phase.RUNNING}:
                log.info("%s is %s: nothing is planned or sent", run.pipeline.name, ", ".join(sorted(phases)))
                self.more = False
                return 0
            unread = unread_finder(run.setup, run.source, run.sink, records)
            planner = Planner(run.pipeline, run.source, records, skipped, unread)
            planned: list[Batch] = []
            found = planner.plan(run.known_files.read()) if planner.budget > 0 else None
            # After planning, so that no planned row is newer than the columns under which it is read.
            may_plan = self.schema is None or self.schema.follow()
            if found is not None and may_plan:
                self.more = found.more
                run.bounds.update(found.bounds)
                self._log_notices(found)
                store_replays(run, records, found.batches)
                file_lists.store_in_sink(run, found.files)
                planned = run.ledger.plan(run.lease, found)
        waiting = sum(batch.state is BatchState.PLANNED for batch in blocking)
        if planned:
            log.info("Planned %d batches of %s; %d wait", len(planned), run.pipeline.name, waiting + len(planned))
        return waiting + len(planned)

    @cached_property
    def schema(self) -> SchemaVersions | None:
        """Versions of the source's columns; None if the pipeline does not declare ``schema``."""
        return None if self._run.pipeline.schema_ is None else SchemaVersions(self._run)

    def raise_refused(self) -> None:
        """Raise an error at the end of the run if the source refused to plan a part of its records.

        :raises CkptError: the error of the first refusal; its message gives the number of further refusals
        """
        first, *more = self._refused.values() or [None]
        if first is not None:
            if more:
                first.message = f"{first.message} {len(more)} more could not be read either; the log names them."
            raise first

    def _log_notices(self, found: Plan) -> None:
        """Log the source's notices and refusals in a plan, each once per run, and keep them for the end of the run.

        :param found: the plan
        """
        for notice in found.notices:
            if notice not in self._run.summary.notices:
                log.warning("%s: %s", self._run.pipeline.name, notice)
                self._run.summary.notices.append(notice)
        for error in found.refused:
            if error.message not in self._refused:
                log.error("%s continues without this: %s", self._run.pipeline.name, error)
                self._refused[error.message] = error
