"""Commands and queries for a pipeline's sink: its expected state, receipts that it must have, and skipped ranges.

A run compares the expected state with the sink, to detect a sink that was restored, recreated or replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState, UnfinishedAcceptance
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.commands.sink_state import store_state, store_unaccepted
from airflow_provider_ckpt.ledger.queries import sink_state
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.types import Lease


class SinkCommands(Session):
    """Commands and queries about the state in which runs left a pipeline's sink; ``sink_state.py`` implements them."""

    def expected_sink_state(self, pipeline: str) -> ExpectedSinkState:
        """Return the state in which the newest run left the sink: fence, target and location.

        All of them are None as long as no batch has begun, or if the ledger does not know the pipeline.
        """
        with self._reading() as connection:
            return sink_state.load_expected_state(connection, pipeline)

    def expected_sink(self, pipeline: str) -> tuple[ExpectedSinkState, list[BatchKey]]:
        """Return the state in which the newest run left the sink, and the batches whose receipts a run looks for there.

        A run detects by them that the sink has lost commits. A sink that was restored has lost its last commits, so the
        batches are those of the newest receipts that the ledger knows; see ``queries/sink_state.py`` for the exact
        choice.
        """
        with self._reading() as connection:
            state = sink_state.load_expected_state(connection, pipeline)
            return state, sink_state.expected_receipts(connection, pipeline, state.epoch)

    def store_sink_state(self, lease: Lease, state: ExpectedSinkState) -> None:
        """Store the state of the sink after its fence was raised to the lease's epoch.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param state: epoch of the fence, target and location of the sink
        """
        with self._command(lease, touch=()) as work:
            store_state(work, state)

    def store_unaccepted(self, lease: Lease, evidence: UnfinishedAcceptance) -> None:
        """Store the differences of a changed sink that a user is about to accept, before the sink is fenced.

        Runs are refused from then on until the user's action on the sink has been carried out.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param evidence: the differences that were found
        """
        with self._command(lease, touch=()) as work:
            store_unaccepted(work, evidence)

    def first_positions(self, pipeline: str) -> dict[str, int]:
        """Return, by partition id, the lowest of the positions at which the partition's generations began."""
        with self._reading() as connection:
            return sink_state.first_positions(connection, pipeline)

    def skipped_ranges(self, pipeline: str) -> Mapping[tuple[int, str], list[Range]]:
        """Return the ranges of batches that were skipped without a receipt in the sink, by generation and partition.

        The ranges are read from the audit log, so those whose events were garbage-collected are missing.
        """
        with self._reading() as connection:
            return sink_state.skipped_ranges(connection, pipeline)
