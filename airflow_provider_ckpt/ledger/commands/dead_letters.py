"""What the ledger knows of dead letters, and the error types that it learns from the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.core.dead_letters import AttemptKey, Entry, Reread
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import dead_letters
from airflow_provider_ckpt.ledger.store import lease as leases


@dataclass(frozen=True, slots=True)
class LetterIndex:
    """The index of a pipeline's dead letters.

    :param rereads: stretches that were read once more, which subsume the older letters inside them
    """

    entries: list[Entry]
    rereads: list[Reread]


class LetterCommands(Session):
    """The index of dead letters; ``people.py`` has the acts that change their states."""

    def letters(self, pipeline: str) -> LetterIndex:
        """The index, in one snapshot.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.known(connection, pipeline)
            return LetterIndex(dead_letters.load(connection, pipeline), dead_letters.rereads(connection, pipeline))

    def forgotten_replays(self, pipeline: str, partitions: Mapping[str, int]) -> list[str]:
        """Which side partitions this ledger has never known; one that was collected it has.

        :param partitions: their generations
        """
        with self._reading() as connection:
            return dead_letters.forgotten(connection, pipeline, partitions)

    def name_letter_types(self, pipeline: str, types: Mapping[AttemptKey, Mapping[str, int]]) -> None:
        """Fill in error types that were ``unknown``, as the sink tells them; no act comes in between.

        :param types: of each attempt, its letters by error type
        """
        with self._writing() as connection:
            status.known(connection, pipeline)
            leases.lock(connection, pipeline)
            dead_letters.name_types(connection, pipeline, types)
