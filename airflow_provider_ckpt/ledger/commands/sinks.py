"""Commands and queries for a pipeline's sink: the state in which it was left, expected receipts, skipped ranges."""

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
    """Commands and queries for a pipeline's sink; see ``sink_state.py``."""

    def expected_sink_state(self, pipeline: str) -> ExpectedSinkState:
        """Return the state in which the newest run left the sink."""
        with self._reading() as connection:
            return sink_state.load_expected_state(connection, pipeline)

    def expected_receipts(self, pipeline: str) -> list[BatchKey]:
        """Return the batches whose receipt the sink must hold; see ``sink_state.py`` for the choice."""
        with self._reading() as connection:
            return sink_state.expected_receipts(connection, pipeline)

    def store_sink_state(self, lease: Lease, state: ExpectedSinkState) -> None:
        """Store the state of the sink after its fence was raised to the lease's epoch."""
        with self._command(lease, touch=()) as work:
            store_state(work, state)

    def store_unaccepted(self, lease: Lease, evidence: UnfinishedAcceptance) -> None:
        """Store the evidence of a sink that a user is about to accept, before its fence is raised.

        Runs are refused from then on until an action on the sink has been carried out.
        """
        with self._command(lease, touch=()) as work:
            store_unaccepted(work, evidence)

    def first_positions(self, pipeline: str) -> dict[str, int]:
        """Return the lowest base of any generation of each partition, by partition id."""
        with self._reading() as connection:
            return sink_state.first_positions(connection, pipeline)

    def skipped_ranges(self, pipeline: str) -> Mapping[tuple[int, str], list[Range]]:
        """Return the skipped ranges by generation and partition, as far back as the audit log goes."""
        with self._reading() as connection:
            return sink_state.skipped_ranges(connection, pipeline)
