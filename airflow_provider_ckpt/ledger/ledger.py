"""The :class:`Ledger` class, which joins all commands and queries of the ledger."""

from __future__ import annotations

from airflow_provider_ckpt.ledger.commands.admin import AdminCommands
from airflow_provider_ckpt.ledger.commands.dead_letters import DeadLetterCommands
from airflow_provider_ckpt.ledger.commands.proposals import ProposalCommands
from airflow_provider_ckpt.ledger.commands.runs import RunCommands
from airflow_provider_ckpt.ledger.commands.sinks import SinkCommands
from airflow_provider_ckpt.ledger.queries.queries import Queries


class Ledger(RunCommands, SinkCommands, AdminCommands, ProposalCommands, DeadLetterCommands, Queries):
    """One ledger database; open it with :meth:`open`.

    Every command that takes a lease locks the lease row and checks the epoch under that lock. It raises
    :class:`StaleEpochError` and stores nothing if a newer epoch has been granted. A database that fails is reported as
    :class:`LedgerUnavailableError`, a value that it cannot store as :class:`LedgerStateError`.
    """
