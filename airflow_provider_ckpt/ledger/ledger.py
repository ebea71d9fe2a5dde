"""The ledger's face."""

from __future__ import annotations

from airflow_provider_ckpt.ledger.commands.admin import PeopleCommands
from airflow_provider_ckpt.ledger.commands.dead_letters import LetterCommands
from airflow_provider_ckpt.ledger.commands.proposals import ProposalCommands
from airflow_provider_ckpt.ledger.commands.runs import RunCommands
from airflow_provider_ckpt.ledger.commands.sinks import SinkCommands
from airflow_provider_ckpt.ledger.queries.queries import Views


class Ledger(RunCommands, SinkCommands, PeopleCommands, ProposalCommands, LetterCommands, Views):
    """One ledger database; see :meth:`open`.

    Every command that takes a lease locks its row and checks the epoch under that lock: it raises
    :class:`StaleEpochError` once a newer epoch was granted, and stores nothing. Any trouble with the database is a
    :class:`LedgerUnavailableError`.
    """
