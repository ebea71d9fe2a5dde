"""Commands of the dead letter index: read it, and replace unknown error types by those that the sink reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.core.dead_letters import AttemptKey, IndexEntry, RereadRange
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import dead_letter_index
from airflow_provider_ckpt.ledger.store import lease as lease_store


@dataclass(frozen=True, slots=True)
class DeadLetterIndex:
    """Index of a pipeline's dead letters, as read from the ledger in one snapshot.

    :param entries: entries of the index, by batch, error type and ordinal
    :param rereads: ranges of the source that were read again; dead letters inside them are obsolete if their generation
        is older than the one that read the range again
    """

    entries: list[IndexEntry]
    rereads: list[RereadRange]


class DeadLetterCommands(Session):
    """Commands that read the index of dead letters, and that add error types to it.

    Actions of users that change the state of dead letters are in ``request_action.py``.
    """

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
        """Return the ids of those given side partitions that this ledger has never stored, sorted.

        A side partition that was garbage-collected counts as stored. The caller restores the others.

        :param pipeline: name of the pipeline
        :param partitions: generation of each given side partition, by id
        """
        with self._reading() as connection:
            return dead_letter_index.unknown_side_partitions(connection, pipeline, partitions)

    def set_error_types(self, pipeline: str, types: Mapping[AttemptKey, Mapping[str, int]]) -> None:
        """Replace the error type ``unknown`` of dead letters in the index by the types that the sink reports.

        The ledger does not know the types of dead letters that it knows only from a receipt, which counts them without
        types. The lease row is locked meanwhile, so that no other command changes the index.

        :param pipeline: name of the pipeline
        :param types: for each attempt that wrote dead letters, their number by error type
        """
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease_store.lock_row(connection, pipeline)
            dead_letter_index.set_error_types(connection, pipeline, types)
