"""Define :class:`Ledger`, which unites all commands and queries of the ledger in one class."""

from __future__ import annotations

from airflow_provider_ckpt.ledger.commands.adopt_other_ledger import AdoptionCommands
from airflow_provider_ckpt.ledger.commands.break_lease import LeaseBreakingCommands
from airflow_provider_ckpt.ledger.commands.dead_letters import DeadLetterCommands
from airflow_provider_ckpt.ledger.commands.delete_pipeline import PipelineDeletionCommands
from airflow_provider_ckpt.ledger.commands.dry_runs import DryRunCommands
from airflow_provider_ckpt.ledger.commands.garbage_collection import GarbageCollectionCommands
from airflow_provider_ckpt.ledger.commands.proposals import ProposalCommands
from airflow_provider_ckpt.ledger.commands.refresh import RefreshCommands
from airflow_provider_ckpt.ledger.commands.request_action import ActionCommands
from airflow_provider_ckpt.ledger.commands.runs import RunCommands
from airflow_provider_ckpt.ledger.commands.schema_versions import SchemaVersionCommands
from airflow_provider_ckpt.ledger.commands.sinks import SinkCommands
from airflow_provider_ckpt.ledger.queries.page import PageQueries
from airflow_provider_ckpt.ledger.queries.queries import Queries


class Ledger(
    RunCommands,
    RefreshCommands,
    SinkCommands,
    SchemaVersionCommands,
    ActionCommands,
    AdoptionCommands,
    LeaseBreakingCommands,
    PipelineDeletionCommands,
    GarbageCollectionCommands,
    ProposalCommands,
    DryRunCommands,
    DeadLetterCommands,
    Queries,
    PageQueries,
):
    """One ledger database; open it with :meth:`open`.

    Every command that takes a lease as argument locks the lease row and checks the epoch under that lock. If the lease
    was released or a newer epoch granted, it raises :class:`StaleEpochError` and stores nothing; only :meth:`release`
    and :meth:`renew_all` raise no error. A failure of the database is raised as :class:`LedgerUnavailableError`, a
    value that the database cannot store as :class:`LedgerStateError`.
    """
