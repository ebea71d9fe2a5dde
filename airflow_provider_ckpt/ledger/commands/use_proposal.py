"""Use up the approved proposal of an action, in the transaction that carries the action out."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.ledger.commands import proposals
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, Lease


def use_proposal(
    connection: Connection, proposal: str, action: Action, result: ActionResult, pipeline: str, actor: str
) -> None:
    """Mark a proposal as carried out, and record an event that names the approval on which the action is based.

    :param connection: connection inside the transaction of the action
    :param proposal: id of the proposal
    :param action: the action that was carried out or stored
    :param result: the result of the action
    :param pipeline: name of the pipeline
    :param actor: the user in whose name the action was carried out
    :raises LedgerStateError: if the proposal is not approved, was used already, or is for another action
    """
    detail = proposals.use_up(connection, proposal, action, result, pipeline=pipeline, actor=actor)
    lease_row = lease_store.lock_row(connection, pipeline)
    moment = lease_store.database_time(connection)
    event_lease = Lease(pipeline, actor, lease_row.epoch if lease_row else 0, timedelta(0), moment)
    bulk_sql.insert(connection, tables.event, [events.event_row(event_lease, moment, "approved", detail)])
