"""The ledger's commands about a pipeline's sink: how it was left, what it must hold, and what was let go."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.sink_standing import SinkStanding, Unaccepted
from airflow_provider_ckpt.ledger.commands import sink_state
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.types import Lease


class SinkCommands(Session):
    """The ledger's commands about a pipeline's sink; see ``sinks.py``."""

    def sink_standing(self, pipeline: str) -> SinkStanding:
        """Return the state in which the newest run left the sink."""
        with self._reading() as connection:
            return sink_state.standing(connection, pipeline)

    def expected_receipts(self, pipeline: str) -> list[BatchKey]:
        """Batches whose receipt the sink must hold: as many as the newest run delivered, and what is pending."""
        with self._reading() as connection:
            return sink_state.expected_receipts(connection, pipeline)

    def note_sink(self, lease: Lease, standing: SinkStanding) -> None:
        """Store how the sink stands, once its fence has been raised to the lease's epoch."""
        with self._command(lease, touch=()) as work:
            sink_state.note(work, standing)

    def note_unaccepted(self, lease: Lease, seen: Unaccepted) -> None:
        """Store the evidence of a sink that a person is about to accept, before its fence is raised.

        Runs are refused from then on until an act on the sink was carried out.
        """
        with self._command(lease, touch=()) as work:
            sink_state.note_unaccepted(work, seen)

    def first_positions(self, pipeline: str) -> dict[str, int]:
        """By partition, the least position that any of its generations began at."""
        with self._reading() as connection:
            return sink_state.first_positions(connection, pipeline)

    def skipped_ranges(self, pipeline: str) -> Mapping[tuple[int, str], list[Range]]:
        """Ranges that a person or policy let go, by generation and partition, as far back as the audit trail goes."""
        with self._reading() as connection:
            return sink_state.skipped(connection, pipeline)
