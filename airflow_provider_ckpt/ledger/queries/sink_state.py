"""Read the state in which a run left the sink: fence, target, location, and receipts that must still be there.

``core/changed_sink.py`` compares that state with the sink, to detect a sink that has lost commits. Each partition
stores the seqs of the batches with a receipt of its newest epoch. So a run can ask the sink for all receipts of the
newest epoch of the pipeline, for the newest receipt of each partition without a receipt of this epoch, and for the
receipts of batches beyond the checkpoints.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink
from airflow_provider_ckpt.core.batch import RESOLVED, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState, UnfinishedAcceptance
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.receipted_batches import ReceiptedBatches

_B, _E, _G = tables.batch.c, tables.event.c, tables.generation.c
_N, _P = tables.pipeline.c, tables.partition.c

ACCEPTED = "sink_accepted"
"""Kind of the event that stores the losses of the sink which a user accepted; it is never garbage-collected."""

_WRITTEN = [state.value for state in (BatchState.IN_FLIGHT, *RESOLVED)]


def load_expected_state(connection: Connection, pipeline: str) -> ExpectedSinkState:
    """Return the state in which the newest run left the pipeline's sink, as the ledger stores it.

    Epoch, target and location are None as long as no batch has begun: such a sink cannot have lost anything.
    """
    columns = (_N.sink_epoch, _N.sink_target, _N.sink_location, _N.sink_unaccepted)
    row = connection.execute(sa.select(*columns).where(_N.name == pipeline)).one_or_none()
    started = sa.exists().where(_B.pipeline == pipeline, _B.attempts > 0)
    written = sa.or_(
        sa.exists().where(_B.pipeline == pipeline, _B.state.in_(_WRITTEN)),
        sa.exists().where(_P.pipeline == pipeline, _P.batches > 0),
        sa.exists().where(_G.pipeline == pipeline, _G.batches > 0),
    )
    ever_begun, ever_written = connection.execute(sa.select(started, written)).one()
    if row is None or not (ever_begun or ever_written):
        return ExpectedSinkState()
    epoch, target, location, document = row
    unfinished_acceptance = None if document is None else UnfinishedAcceptance.from_json(document)
    return ExpectedSinkState(epoch, target, location, ever_written, unfinished_acceptance)


def expected_receipts(connection: Connection, pipeline: str, raised: int | None) -> list[BatchKey]:
    """Return the batches whose receipts the sink must still have, in order.

    A sink that was restored has lost its last commits. Therefore either its fence is too low, or one of these receipts
    is missing:

    - all receipts of the newest epoch that fenced the sink
    - for each partition without a receipt of that epoch, its newest receipt; side partitions that have ended are left
      out
    - receipts of batches beyond the checkpoint, except those that a user has accepted as lost

    Side partitions that have ended deliver no more, so the sink has written many newer receipts after theirs.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param raised: epoch of the expected state (:func:`load_expected_state`)
    """
    found: set[BatchKey] = set()
    ended = sa.and_(_P.side_end.is_not(None), _P.committed == _P.side_end)
    rows = connection.execute(sa.select(_P.partition, _P.receipted, ended).where(_P.pipeline == pipeline))
    for partition, document, has_ended in rows:
        if document is not None:
            known = ReceiptedBatches.from_json(document)
            if has_ended and known.epoch != raised:
                continue
            numbers = known.numbers if known.epoch == raised else [known.runs[-1][1]]
            found.update(BatchKey(known.generation, partition, number) for number in numbers)
    receipted = sa.and_(_B.pipeline == pipeline, _B.receipt.is_not(None))
    columns = (_B.generation, _B.partition, _B.seq, _B.range_start, _B.range_end)
    accepted_losses = accepted(connection, pipeline)
    for *key, start, end in connection.execute(sa.select(*columns).where(receipted)):
        if not accepted_losses.covers(BatchKey(*key), Range(start, end)):
            found.add(BatchKey(*key))
    return sorted(found)


def replaces_by_key(connection: Connection, pipeline: str) -> bool:
    """Return whether the sink replaces rows by key (mode ``upsert``), according to the newest run's declaration."""
    document = connection.execute(sa.select(_N.document).where(_N.name == pipeline)).scalar_one()
    return bool(document) and document.get("sink", {}).get("mode") == "upsert"


def first_positions(connection: Connection, pipeline: str) -> dict[str, int]:
    """Return the lowest position at which any generation of each partition began, by partition id."""
    least = sa.select(_G.partition, sa.func.min(_G.base)).where(_G.pipeline == pipeline).group_by(_G.partition)
    return {row[0]: row[1] for row in connection.execute(least)}


def skipped_ranges(connection: Connection, pipeline: str) -> dict[tuple[int, str], list[Range]]:
    """Return the ranges of batches that were skipped without a receipt in the sink, by generation and partition.

    The ranges are read from the audit log, so those whose events were garbage-collected are missing.
    """
    rows = connection.execute(
        sa.select(_E.generation, _E.partition, _E.detail).where(_E.pipeline == pipeline, _E.kind == "skipped")
    )
    found: dict[tuple[int, str], list[Range]] = {}
    for generation, partition, detail in rows:
        if "range" in detail:
            found.setdefault((generation, partition), []).append(Range(*detail["range"]))
    return found


def accepted(connection: Connection, pipeline: str) -> AcceptedSink:
    """Return the losses of the sink that a user has accepted; empty if there are none.

    The losses are read from the newest event of an acceptance, which also contains those that were accepted before.
    Losses that were accepted before the pipeline was deleted from the ledger do not count.
    """
    of_pipeline = sa.and_(_E.pipeline == pipeline, _E.kind.in_((ACCEPTED, "forgotten")))
    newest = connection.execute(
        sa.select(_E.kind, _E.detail).where(of_pipeline).order_by(_E.id.desc()).limit(1)
    ).one_or_none()
    return AcceptedSink.from_json(newest.detail) if newest is not None and newest.kind == ACCEPTED else AcceptedSink()


def to_json(known: ExpectedSinkState) -> dict[str, Any]:
    """Return the stored state of a sink as a JSON-ready dict with the keys ``epoch``, ``target`` and ``location``.

    The audit log shows this dict as the state before or after an action; a value that is not known is None.
    """
    return {"epoch": known.epoch, "target": known.target, "location": known.location}
