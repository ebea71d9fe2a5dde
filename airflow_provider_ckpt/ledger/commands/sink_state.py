"""Store the state in which a run left the sink, and the losses of the sink that a user accepted.

The next run compares the stored state with the sink, to detect a sink that has lost commits. ``queries/sink_state.py``
reads the stored state.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState, UnfinishedAcceptance
from airflow_provider_ckpt.ledger.queries.sink_state import ACCEPTED, load_expected_state, to_json
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

_N, _P = tables.pipeline.c, tables.partition.c


def store_state(work: UnitOfWork, now: ExpectedSinkState) -> None:
    """Store the state in which a run leaves the sink; record an event if its target or location have changed.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param now: epoch of the fence, target and location of the sink
    """
    pipeline = work.lease.pipeline
    before = load_expected_state(work.connection, pipeline)
    values = {"sink_epoch": now.epoch, "sink_target": now.target, "sink_location": now.location}
    work.connection.execute(tables.pipeline.update().where(_N.name == pipeline).values(values))
    if (before.target, before.location) != (now.target, now.location):
        detail = {"before": to_json(before), "after": to_json(now)}
        bulk_sql.insert(work.connection, tables.event, [events.event_row(work.lease, work.now, "sink_noted", detail)])


def store_unaccepted(work: UnitOfWork, evidence: UnfinishedAcceptance) -> None:
    """Store the differences of a changed sink that a user is about to accept, before the acceptance changes the sink.

    The acceptance fences the sink, which hides some of the differences. :func:`clear_state` deletes the stored
    differences when the acceptance is complete.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param evidence: the differences that were found
    """
    of_pipeline = _N.name == work.lease.pipeline
    work.connection.execute(tables.pipeline.update().where(of_pipeline).values(sink_unaccepted=evidence.to_json()))


def store_accepted(work: UnitOfWork, accepted: AcceptedSink, actor: str) -> None:
    """Store losses of the sink that a user has accepted, in an event; later runs and audits do not report them.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param accepted: the lost receipts and rows
    :param actor: the user who accepted them
    """
    row = events.event_row(work.lease, work.now, ACCEPTED, accepted.to_json()) | {"actor": actor}
    bulk_sql.insert(work.connection, tables.event, [row])


def clear_state(connection: Connection, pipeline: str) -> None:
    """Delete the stored state of a pipeline's sink; the next run stores it again once it has fenced the sink."""
    nothing = {"sink_epoch": None, "sink_target": None, "sink_location": None, "sink_unaccepted": None}
    connection.execute(tables.pipeline.update().where(_N.name == pipeline).values(nothing))
    connection.execute(tables.partition.update().where(_P.pipeline == pipeline).values(receipted=None))
