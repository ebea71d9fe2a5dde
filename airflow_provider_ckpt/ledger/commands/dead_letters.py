"""Read the index of dead letters, and complete it with error types that the sink reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.core.dead_letter_index import AttemptKey, IndexEntry, RereadRange
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import dead_letter_index
from airflow_provider_ckpt.ledger.store import lease as lease_store


@dataclass(frozen=True, slots=True)
class DeadLetterIndex:
    """Index of a pipeline's dead letters.

    :param entries: entries of the index, in order
    :param rereads: ranges that were read again; older dead letters inside them no longer count
    """

    entries: list[IndexEntry]
    rereads: list[RereadRange]


class DeadLetterCommands(Session):
    """Commands for the index of dead letters; actions that change their states are in ``admin.py``."""

    def dead_letter_index(self, pipeline: str) -> DeadLetterIndex:
        """Return the index of a pipeline's dead letters, read in one snapshot.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return DeadLetterIndex(
                dead_letter_index.load(connection, pipeline), dead_letter_index.load_rereads(connection, pipeline)
            )

    def unknown_replays(self, pipeline: str, partitions: Mapping[str, int]) -> list[str]:
        """Return the side partitions that this ledger has never known; garbage-collected ones are known.

        :param partitions: generation of each side partition, by id
        """
        with self._reading() as connection:
            return dead_letter_index.unknown_side_partitions(connection, pipeline, partitions)

    def set_error_types(self, pipeline: str, types: Mapping[AttemptKey, Mapping[str, int]]) -> None:
        """Replace the error type ``unknown`` by the types that the sink reports.

        The lease row is locked meanwhile, so that no action interferes.

        :param types: dead letters of each attempt, counted by error type
        """
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease_store.lock_row(connection, pipeline)
            dead_letter_index.set_error_types(connection, pipeline, types)
