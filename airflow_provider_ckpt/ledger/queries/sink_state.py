"""Read the state in which a run left the sink: fence, target, location, and receipts that must still be there.

``core/changed_sink.py`` compares that state with the sink. A partition stores the numbers of batches whose receipt is
of its newest epoch, so a run asks the sink for no more receipts than the run before it delivered.
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
"""Kind of the event that stores the losses which a user accepted; it is never garbage-collected."""

_WRITTEN = [state.value for state in (BatchState.IN_FLIGHT, *RESOLVED)]


def load_expected_state(connection: Connection, pipeline: str) -> ExpectedSinkState:
    """Return the stored state in which the newest run left the pipeline's sink.

    Epoch, target and location are None as long as no batch began: such a sink has nothing to lose.
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


def expected_receipts(connection: Connection, pipeline: str) -> list[BatchKey]:
    """Return the batches whose receipt the sink must hold, in order.

    They are all that have a receipt of the newest epoch raised there, the newest of each partition of an older epoch,
    and those beyond the checkpoint that no user has accepted as lost. Whatever suffix of its commits the sink has
    lost, one of them is in it, or the newest fence. So of a side partition that has ended nothing is asked for once a
    newer epoch is raised: it delivers no more, and its receipts lie further back in the sink with every run.
    """
    raised = load_expected_state(connection, pipeline).epoch
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
    """Return whether the sink replaces rows by key, according to the newest run's declaration."""
    document = connection.execute(sa.select(_N.document).where(_N.name == pipeline)).scalar_one()
    return bool(document) and document.get("sink", {}).get("mode") == "upsert"


def first_positions(connection: Connection, pipeline: str) -> dict[str, int]:
    """Return the lowest base of any generation of each partition, by partition id."""
    least = sa.select(_G.partition, sa.func.min(_G.base)).where(_G.pipeline == pipeline).group_by(_G.partition)
    return {row[0]: row[1] for row in connection.execute(least)}


def skipped_ranges(connection: Connection, pipeline: str) -> dict[tuple[int, str], list[Range]]:
    """Return the skipped ranges by generation and partition, as far back as the audit log goes."""
    rows = connection.execute(
        sa.select(_E.generation, _E.partition, _E.detail).where(_E.pipeline == pipeline, _E.kind == "skipped")
    )
    found: dict[tuple[int, str], list[Range]] = {}
    for generation, partition, detail in rows:
        if "range" in detail:
            found.setdefault((generation, partition), []).append(Range(*detail["range"]))
    return found


def accepted(connection: Connection, pipeline: str) -> AcceptedSink:
    """Return the losses that a user has accepted last, which contain those that were accepted before."""
    of_pipeline = sa.and_(_E.pipeline == pipeline, _E.kind.in_((ACCEPTED, "forgotten")))
    newest = connection.execute(
        sa.select(_E.kind, _E.detail).where(of_pipeline).order_by(_E.id.desc()).limit(1)
    ).one_or_none()
    return AcceptedSink.from_json(newest.detail) if newest is not None and newest.kind == ACCEPTED else AcceptedSink()


def to_json(known: ExpectedSinkState) -> dict[str, Any]:
    """Return epoch, target and location of a stored sink state as a JSON-ready dict."""
    return {"epoch": known.epoch, "target": known.target, "location": known.location}
